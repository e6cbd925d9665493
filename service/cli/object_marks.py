"""Puts what a command says on an object: annotations and our finalizer in one patch, on the version it was decided on.
Where others write the object meanwhile, it is read and decided on again: a finalizer that was stripped in between must
not be put back. Where it was replaced, nothing is changed."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from service.cli import session
from service.cli.objects import Chosen
from service.contract.traits import traits_of
from service.kubernetes import Conflict, Live, NotFound

_TRIES: Final = 10


class Marks(NamedTuple):
    """Annotations to set, or with None to take away. `finalizer` is True to put ours on, False to take it off unless
    the object is going, None to leave it as it is."""

    annotations: dict[str, str | None]
    finalizer: bool | None = None


Decide = Callable[[Live], Awaitable[Marks]]


async def put(one: Chosen, decide: Decide) -> Live:
    """The object as it is then. Raises Trouble."""
    live: Live | None = one.live
    for _ in range(_TRIES):
        if live is None or live.uid != one.live.uid:
            raise session.Trouble(f"{one} has gone meanwhile; nothing was changed")
        marks = await decide(live)
        try:
            return await one.cluster.patch(one.served, live.namespace, live.name, _patch(one, live, marks))
        except (Conflict, NotFound):
            live = await one.cluster.get(one.served, live.namespace, live.name)
    raise session.Trouble(f"{one} changes so fast that no patch gets through; try again")


def _patch(one: Chosen, live: Live, marks: Marks) -> dict[str, Any]:
    ours = traits_of(one.settings.collector).finalizer
    finalizers = list(live.finalizers)
    if marks.finalizer and ours not in finalizers and not live.going:
        finalizers.append(ours)
    if marks.finalizer is False and not live.going:
        finalizers = [name for name in finalizers if name != ours]
    meta: dict[str, Any] = {"resourceVersion": live.resource_version, "annotations": marks.annotations}
    if finalizers != list(live.finalizers):
        meta["finalizers"] = finalizers
    return {"metadata": meta}
