"""Tells an object's owner what happens, as a Kubernetes Event beside the object.
An Event is a courtesy: one that is refused, as in a terminating namespace, is logged and fails nothing."""

import socket
import uuid
from datetime import UTC, datetime
from typing import Final, Literal

import structlog

from service.contract.names import CONTROLLER
from service.kubernetes.client import Cluster
from service.kubernetes.errors import ClusterError
from service.kubernetes.objects import EVENTS, Seen, Served

log = structlog.get_logger(__name__)

EventType = Literal["Normal", "Warning"]

# The server's own limits.
_LONGEST_NOTE: Final = 1024
_LONGEST_WORD: Final = 128
_LONGEST_NAME: Final = 253


async def post(
    cluster: Cluster, served: Served, seen: Seen, reason: str, message: str, kind: EventType = "Normal"
) -> bool:
    """Whether the server took it."""
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
        "note": cut(message, _LONGEST_NOTE),
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


def cut(text: str, most: int) -> str:
    """At most so many bytes, for the server counts bytes, and never half a character."""
    encoded = text.encode()
    if len(encoded) <= most:
        return text
    return encoded[: most - 3].decode(errors="ignore") + "…"
