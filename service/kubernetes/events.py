"""Kubernetes Events about objects. An Event that is refused, as in a terminating namespace, is logged and fails
nothing."""

import socket
import uuid
from datetime import UTC, datetime
from typing import Final, Literal

import structlog

from service.contract.names import CONTROLLER
from service.kubernetes.client import KubernetesClient
from service.kubernetes.errors import ClusterError
from service.kubernetes.objects import EVENTS, KubeObject, ServedResource

log = structlog.get_logger(__name__)

EventType = Literal["Normal", "Warning"]

# Limits of the server.
_LONGEST_NOTE: Final = 1024
_LONGEST_WORD: Final = 128
_LONGEST_NAME: Final = 253


async def post_event(
    cluster: KubernetesClient,
    served: ServedResource,
    seen: KubeObject,
    reason: str,
    message: str,
    kind: EventType = "Normal",
) -> bool:
    """Whether the server accepted it."""
    namespace = seen.namespace or "default"
    suffix = f".{uuid.uuid4().hex[:16]}"
    body = {
        "metadata": {"name": seen.name[: _LONGEST_NAME - len(suffix)] + suffix, "namespace": namespace},
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": CONTROLLER,
        "reportingInstance": socket.gethostname()[:_LONGEST_WORD] or CONTROLLER,
        "action": reason[:_LONGEST_WORD],
        "reason": reason[:_LONGEST_WORD],
        "type": kind,
        "note": truncate(message, _LONGEST_NOTE),
        "regarding": {
            "apiVersion": served.api_version,
            "kind": served.kind,
            "name": seen.name,
            "namespace": seen.namespace,
            "uid": seen.uid,
            "resourceVersion": seen.resource_version,
        },
    }
    try:
        await cluster.create(EVENTS, namespace, body)
    except ClusterError as error:
        log.info("event not posted", cluster=cluster.name, uid=seen.uid, reason=reason, error=str(error))
        return False
    return True


def truncate(text: str, most: int) -> str:
    """To at most so many bytes of UTF-8, without half a character."""
    encoded = text.encode()
    if len(encoded) <= most:
        return text
    return encoded[: most - 3].decode(errors="ignore") + "…"
