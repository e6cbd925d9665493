"""Conditions on objects: the state of a deletion, in the status, or in an annotation if the kind has no place for it.
The conditions of others are kept; a failure is logged and fails nothing."""

from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
import structlog

from service.contract.names import STATUS
from service.kubernetes.client import KubernetesClient
from service.kubernetes.errors import ClusterError, Conflict, Invalid, TooMany, Unavailable, WatchStalled
from service.kubernetes.events import truncate
from service.kubernetes.objects import KubeObject, ServedResource

log = structlog.get_logger(__name__)

ConditionStatus = Literal["True", "False", "Unknown"]

_TRIES: Final = 5
_LONGEST_MESSAGE: Final = 4096


class _ConditionedStatus(msgspec.Struct):
    # Mappings, because conditions of others may have fields that are unknown here.
    conditions: list[dict[str, Any]] | None = None


class _WithStatus(msgspec.Struct):
    status: _ConditionedStatus | None = None


async def set_condition(
    cluster: KubernetesClient,
    served: ServedResource,
    seen: KubeObject,
    kind: str,
    status: ConditionStatus,
    reason: str,
    message: str,
) -> bool | None:
    """Whether the object has the condition now; None after a failure that may not happen again. The lastTransitionTime
    is kept while the status stays the same."""
    wanted = {"type": kind, "status": status, "reason": reason, "message": truncate(message, _LONGEST_MESSAGE)}
    try:
        return await _write_condition(cluster, served, seen, wanted)
    except (ClusterError, msgspec.DecodeError) as error:
        log.info("condition not set", cluster=cluster.name, uid=seen.uid, reason=reason, error=str(error))
        return None if isinstance(error, Conflict | TooMany | Unavailable | WatchStalled) else False


async def _write_condition(
    cluster: KubernetesClient, served: ServedResource, seen: KubeObject, wanted: dict[str, str]
) -> bool:
    # An object without raw JSON has to be read.
    live: KubeObject | None = seen if len(memoryview(seen.raw)) else None
    in_status = served.status
    for _ in range(_TRIES):
        live = live or await cluster.get(served, seen.namespace, seen.name)
        if live is None or live.uid != seen.uid:
            return False
        try:
            if not in_status:
                return await _patch_annotation(cluster, served, live, wanted)
            if await _patch_status(cluster, served, live, wanted):
                return True
            # The server dropped the condition: the status of the kind has no place for it.
            in_status, live = False, None
        except Conflict:
            live = None
        except Invalid:
            if not in_status:
                raise
            in_status, live = False, None
    raise Conflict(f"{served.resource} {seen.namespace}/{seen.name} is changed by others all the time")


async def _patch_status(
    cluster: KubernetesClient, served: ServedResource, live: KubeObject, wanted: dict[str, str]
) -> bool:
    conditions = _conditions(live)
    before = next((known for known in conditions if known.get("type") == wanted["type"]), None)
    if before is not None and _matches(before, wanted):
        return True
    after = _with_transition_time(before, wanted)
    # The list is replaced as a whole; with the resource version no concurrent change of it is lost.
    listed = [after if known is before else known for known in conditions] if before else [*conditions, after]
    answer = await cluster.patch(
        served,
        live.namespace,
        live.name,
        {
            "metadata": {"uid": live.uid, "resourceVersion": live.resource_version},
            "status": {"conditions": listed},
        },
        subresource="status",
    )
    return any(known.get("type") == wanted["type"] and _matches(known, wanted) for known in _conditions(answer))


async def _patch_annotation(
    cluster: KubernetesClient, served: ServedResource, live: KubeObject, wanted: dict[str, str]
) -> bool:
    before = _annotated_condition(live)
    if before is not None and _matches(before, wanted):
        return True
    text = msgspec.json.encode(_with_transition_time(before, wanted)).decode()
    await cluster.patch(
        served, live.namespace, live.name, {"metadata": {"uid": live.uid, "annotations": {STATUS: text}}}
    )
    return True


def _conditions(live: KubeObject) -> list[dict[str, Any]]:
    status = msgspec.json.decode(live.raw, type=_WithStatus).status
    return (status.conditions if status else None) or []


def _annotated_condition(live: KubeObject) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(live.annotations.get(STATUS, ""), type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _matches(known: dict[str, Any], wanted: dict[str, str]) -> bool:
    return all(known.get(key) == value for key, value in wanted.items())


def _with_transition_time(before: dict[str, Any] | None, wanted: dict[str, str]) -> dict[str, Any]:
    same = before is not None and before.get("status") == wanted["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {**(before or {}), **wanted, "lastTransitionTime": since or now}
