"""Puts our finalizer on an object and takes it off again; the finalizers of others are passed through untouched.
Every patch names the uid and the resource version that it was decided on, so that a change in between is a conflict."""

from typing import Any, Final, Literal

from service.cluster.client import Cluster
from service.cluster.errors import Conflict, NotFound
from service.cluster.objects import Live, Seen, Served
from service.contract.names import FINALIZER

Unmarked = Literal["removed", "absent", "gone", "other"]

# Somebody who writes the object all the time must not be able to keep us busy for ever.
_TRIES: Final = 8


def marked(seen: Seen) -> bool:
    return FINALIZER in seen.finalizers


def marking(seen: Seen) -> dict[str, Any] | None:
    """The patch that adds our finalizer; None where it is there already, and for an object that is going."""
    if seen.going or marked(seen):
        return None
    return _patch(seen, [*seen.finalizers, FINALIZER])


def unmarking(seen: Seen) -> dict[str, Any] | None:
    """The patch that takes exactly ours off; None where it is not there."""
    if not marked(seen):
        return None
    return _patch(seen, [known for known in seen.finalizers if known != FINALIZER])


async def mark(cluster: Cluster, served: Served, seen: Seen) -> Live | None:
    """None where there was nothing to do. A Conflict is not retried here: whether the object should be marked was
    decided on what has changed since, so it is decided again."""
    patch = marking(seen)
    return None if patch is None else await cluster.patch(served, seen.namespace, seen.name, patch)


async def unmark(
    cluster: Cluster, served: Served, namespace: str, name: str, uid: str, *, live: Live | None = None
) -> Unmarked:
    """What became of it: removed; absent, the object has not got ours; gone, there is no such object; other, another
    object has its name. A `live` object just read saves the first reading. Conflicts are retried on a fresh one."""
    for _ in range(_TRIES):
        live = live or await cluster.get(served, namespace, name)
        if live is None:
            return "gone"
        if live.uid != uid:
            return "other"
        patch = unmarking(live)
        if patch is None:
            return "absent"
        try:
            await cluster.patch(served, namespace, name, patch)
        except Conflict:
            live = None
        except NotFound:
            return "gone"
        else:
            return "removed"
    raise Conflict(f"cluster {cluster.name}: {served.resource} {namespace}/{name} is changed by others all the time")


def _patch(seen: Seen, finalizers: list[str]) -> dict[str, Any]:
    return {"metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version, "finalizers": finalizers}}
