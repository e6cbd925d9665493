"""Patch of an object's metadata, decided on the object as it is. The patch is bound to the resourceVersion that was
decided on: after a conflict the object is read and decided on again."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from service.cli import session
from service.kubernetes import Conflict, KubeObject, KubernetesClient, NotFound, ServedResource

_MAX_PATCHES: Final = 10


async def patch_metadata(
    cluster: KubernetesClient,
    served: ServedResource,
    first: KubeObject,
    decide: Callable[[KubeObject], Awaitable[dict[str, Any]]],
    what: str,
) -> KubeObject:
    """`decide` returns the metadata of a merge patch. Returns the patched object; raises CommandError if it is gone or
    replaced. `what` names it in messages."""
    live: KubeObject | None = first
    for _ in range(_MAX_PATCHES):
        if live is None or live.uid != first.uid:
            raise session.CommandError(f"{what} has gone meanwhile; nothing was changed")
        patch = {"metadata": {"resourceVersion": live.resource_version, **await decide(live)}}
        try:
            return await cluster.patch(served, live.namespace, live.name, patch)
        except (Conflict, NotFound):
            live = await cluster.get(served, live.namespace, live.name)
    raise session.CommandError(f"{what} changes so fast that no patch gets through; try again")
