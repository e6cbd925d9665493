"""Puts a finalizer of ours on an object and takes it off again; those of others are passed through untouched.
Every patch names the uid and the resource version that it was decided on, so that a change in between is a conflict."""

from typing import Any, Final, Literal

from service.kubernetes.client import Cluster
from service.kubernetes.errors import Conflict, NotFound
from service.kubernetes.objects import Live, Seen, Served

Unmarked = Literal["removed", "absent", "gone", "other", "going"]

# Somebody who writes the object all the time must not be able to keep us busy for ever.
_TRIES: Final = 8


def marked(seen: Seen, ours: str, *more: str) -> bool:
    """Whether it has any of these."""
    return any(one in seen.finalizers for one in (ours, *more))


def marking(seen: Seen, ours: str) -> dict[str, Any] | None:
    """The patch that adds our finalizer; None where it is there already, and for an object that is going."""
    if seen.going or marked(seen, ours):
        return None
    return _patch(seen, [*seen.finalizers, ours])


def unmarking(seen: Seen, ours: str, *more: str) -> dict[str, Any] | None:
    """The patch that takes exactly these off; None where it has none of them."""
    if not marked(seen, ours, *more):
        return None
    return _patch(seen, [known for known in seen.finalizers if known not in (ours, *more)])


async def mark(cluster: Cluster, served: Served, seen: Seen, ours: str) -> Live | None:
    """None where there was nothing to do. A Conflict is not retried here: whether the object should be marked was
    decided on what has changed since, so it is decided again."""
    patch = marking(seen, ours)
    return None if patch is None else await cluster.patch(served, seen.namespace, seen.name, patch)


async def unmark(
    cluster: Cluster,
    served: Served,
    namespace: str,
    name: str,
    uid: str,
    ours: str,
    *more: str,
    live: Live | None = None,
    also_going: bool = True,
) -> Unmarked:
    """What became of it: removed; absent, the object has not got ours; gone, there is no such object; other, another
    object has its name; going, it is being deleted and `also_going` was not said. A `live` object just read saves the
    first reading. Conflicts are retried on a fresh one."""
    for _ in range(_TRIES):
        live = live or await cluster.get(served, namespace, name)
        if live is None:
            return "gone"
        if live.uid != uid:
            return "other"
        patch = unmarking(live, ours, *more)
        if patch is None:
            return "absent"
        if live.going and not also_going:
            return "going"
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
