"""Patches that add and remove our finalizers; those of others stay as they are. Every patch has the uid and the
resource version that it was decided on, so that a change in between is a conflict."""

from typing import Any, Final, Literal

from service.kubernetes.client import KubernetesClient
from service.kubernetes.errors import Conflict, NotFound
from service.kubernetes.objects import KubeObject, ServedResource

RemovalOutcome = Literal["removed", "absent", "gone", "other", "going"]

# An object that is changed all the time must not cause endless retries.
_TRIES: Final = 8


def has_finalizer(seen: KubeObject, ours: str, *more: str) -> bool:
    """Whether it has any of these finalizers."""
    return any(one in seen.finalizers for one in (ours, *more))


def finalizer_addition(seen: KubeObject, ours: str) -> dict[str, Any] | None:
    """The patch that adds our finalizer; None if the object has it, or is going."""
    if seen.going or has_finalizer(seen, ours):
        return None
    return _patch(seen, [*seen.finalizers, ours])


def finalizer_removal(seen: KubeObject, ours: str, *more: str) -> dict[str, Any] | None:
    """The patch that removes exactly these; None if the object has none of them."""
    if not has_finalizer(seen, ours, *more):
        return None
    return _patch(seen, [known for known in seen.finalizers if known not in (ours, *more)])


async def add_finalizer(
    cluster: KubernetesClient, served: ServedResource, seen: KubeObject, ours: str
) -> KubeObject | None:
    """None if there was nothing to do. A Conflict is not retried here: the caller has to decide again on the changed
    object."""
    patch = finalizer_addition(seen, ours)
    return None if patch is None else await cluster.patch(served, seen.namespace, seen.name, patch)


async def remove_finalizer(
    cluster: KubernetesClient,
    served: ServedResource,
    namespace: str,
    name: str,
    uid: str,
    ours: str,
    *more: str,
    live: KubeObject | None = None,
    also_deleting: bool = True,
) -> RemovalOutcome:
    """The outcome: removed; absent, the object does not have them; gone, there is no such object; other, another object
    has its name; going, it is being deleted and `also_deleting` is false. A `live` object that was just read saves the
    first read. Conflicts are retried on a fresh one."""
    for _ in range(_TRIES):
        live = live or await cluster.get(served, namespace, name)
        if live is None:
            return "gone"
        if live.uid != uid:
            return "other"
        patch = finalizer_removal(live, ours, *more)
        if patch is None:
            return "absent"
        if live.going and not also_deleting:
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


def _patch(seen: KubeObject, finalizers: list[str]) -> dict[str, Any]:
    return {"metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version, "finalizers": finalizers}}
