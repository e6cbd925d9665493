"""Tells the state of a removal on the object itself: as a condition of its status, or as an annotation without one.
What others wrote into the status is kept; a failure to tell is logged and fails nothing."""

from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
import structlog

from service.contract.names import STATUS
from service.kubernetes.client import Cluster
from service.kubernetes.errors import ClusterError, Conflict, Invalid, Silent, TooMany, Unavailable
from service.kubernetes.events import cut
from service.kubernetes.objects import Live, Seen, Served

log = structlog.get_logger(__name__)

ConditionStatus = Literal["True", "False", "Unknown"]

_TRIES: Final = 5
_LONGEST_MESSAGE: Final = 4096


class _Status(msgspec.Struct):
    # Whole mappings, for a condition of another's may have fields that we know nothing of.
    conditions: list[dict[str, Any]] | None = None


class _WithStatus(msgspec.Struct):
    status: _Status | None = None


async def set_condition(
    cluster: Cluster,
    served: Served,
    seen: Seen,
    kind: str,
    status: ConditionStatus,
    reason: str,
    message: str,
) -> bool | None:
    """Whether the object says so now; None where that failed and may go well the next time. Its last transition is kept
    for as long as the status stays the same."""
    wanted = {"type": kind, "status": status, "reason": reason, "message": cut(message, _LONGEST_MESSAGE)}
    try:
        return await _told(cluster, served, seen, wanted)
    except (ClusterError, msgspec.DecodeError) as error:
        log.info("condition not set", cluster=cluster.name, uid=seen.uid, reason=reason, error=str(error))
        return None if isinstance(error, Conflict | TooMany | Unavailable | Silent) else False


async def _told(cluster: Cluster, served: Served, seen: Seen, wanted: dict[str, str]) -> bool:
    # An object without its text came from somewhere that kept only the marks.
    live: Live | None = seen if len(memoryview(seen.raw)) else None
    in_status = served.status
    for _ in range(_TRIES):
        live = live or await cluster.get(served, seen.namespace, seen.name)
        if live is None or live.uid != seen.uid:
            return False
        try:
            if not in_status:
                return await _annotate(cluster, served, live, wanted)
            if await _into_status(cluster, served, live, wanted):
                return True
            # The server took it and dropped the condition: the kind's status has no place for one.
            in_status, live = False, None
        except Conflict:
            live = None
        except Invalid:
            if not in_status:
                raise
            in_status, live = False, None
    raise Conflict(f"{served.resource} {seen.namespace}/{seen.name} is changed by others all the time")


async def _into_status(cluster: Cluster, served: Served, live: Live, wanted: dict[str, str]) -> bool:
    conditions = _conditions(live)
    before = next((known for known in conditions if known.get("type") == wanted["type"]), None)
    if before is not None and _says(before, wanted):
        return True
    after = _dated(before, wanted)
    # The list is replaced as a whole, hence the resource version: nobody's condition is lost in between.
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
    return any(known.get("type") == wanted["type"] and _says(known, wanted) for known in _conditions(answer))


async def _annotate(cluster: Cluster, served: Served, live: Live, wanted: dict[str, str]) -> bool:
    before = _annotated(live)
    if before is not None and _says(before, wanted):
        return True
    text = msgspec.json.encode(_dated(before, wanted)).decode()
    await cluster.patch(
        served, live.namespace, live.name, {"metadata": {"uid": live.uid, "annotations": {STATUS: text}}}
    )
    return True


def _conditions(live: Live) -> list[dict[str, Any]]:
    status = msgspec.json.decode(live.raw, type=_WithStatus).status
    return (status.conditions if status else None) or []


def _annotated(live: Live) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(live.annotations.get(STATUS, ""), type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _says(known: dict[str, Any], wanted: dict[str, str]) -> bool:
    return all(known.get(key) == value for key, value in wanted.items())


def _dated(before: dict[str, Any] | None, wanted: dict[str, str]) -> dict[str, Any]:
    same = before is not None and before.get("status") == wanted["status"]
    since = before.get("lastTransitionTime") if before is not None and same else None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {**(before or {}), **wanted, "lastTransitionTime": since or now}
