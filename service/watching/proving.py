"""Whether an object that is not seen any more is really gone: asked of the API server, object by object.
Only a 404 of the object itself, or another uid under its name, is an answer, and only while its kind is established."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from service.kubernetes import Cluster, ClusterError, Forbidden, NotFound, NotServed, Seen, Served, Unreadable
from service.kubernetes.definitions import crd_uid, replaced

AT_ONCE: Final = 16
"""Calls to the API server that one source makes at the same time."""

T = TypeVar("T")
Doubt = Callable[[], Awaitable[str]]


class Missing(NamedTuple):
    uid: str
    namespace: str
    name: str


class Proof(NamedTuple):
    """`gone`; `lives`, then `live` is what was found; `held` and `unknown`, then `why` says why nobody can tell."""

    kind: Literal["gone", "lives", "held", "unknown"]
    live: Seen | None = None
    why: str = ""


class Definition(NamedTuple):
    """The CRD of a source's resource. `token` names this very state of it, for a person's word on it."""

    fine: bool
    why: str = ""
    token: str = ""


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """A few at a time. After the first trouble no more are begun, and it is raised as it is."""
    failed: list[ClusterError] = []

    async def take() -> None:
        for item in rest:
            try:
                await work(item)
            except ClusterError as error:
                failed.append(error)
            if failed:
                return

    waiting = list(items)
    rest = iter(waiting)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(waiting))):
            group.create_task(take())
    if failed:
        raise failed[0]


async def definition_of(cluster: Cluster, resource: str) -> Definition:
    """How the CRD stands at this moment; a resource without one is always fine."""
    state = await cluster.crd_state(resource)
    if state in ("built-in", "established"):
        return Definition(True)
    uid = await crd_uid(cluster, resource) if state == "going" else ""
    what = "is being deleted" if state == "going" else "is not installed"
    return Definition(False, f"the CRD of {resource} {what}", f"crd {uid}" if uid else "")


async def _no_doubt() -> str:
    return ""


async def prove(
    cluster: Cluster, served: Served, missing: Sequence[Missing], crd: str | None = None, doubt: Doubt = _no_doubt
) -> dict[str, Proof]:
    """Raises what says nothing about the objects, such as Unavailable: then nothing is known of any of them.

    `crd` is the uid of the CRD that the objects were seen under, empty for a resource without one. Only with it may
    anything be told from `gone`; who needs to know just what lives leaves it out. `doubt` says why a cluster that seems
    to be restored from a backup proves nothing; it is asked after everything else, once for all of them.
    """
    proofs: dict[str, Proof] = {}

    async def look(one: Missing) -> None:
        proofs[one.uid] = await _look(cluster, served, one)

    unserved: NotServed | None = None
    try:
        await each(missing, look)
    except NotServed as error:
        unserved = error
    if unserved is None and not any(proof.kind == "gone" for proof in proofs.values()):
        return proofs
    # After the reads: a CRD that went meanwhile took the objects with it.
    definition = await definition_of(cluster, served.resource)
    if definition.fine and unserved is not None:
        # It is served in another version by now, in which everything is asked again.
        raise unserved
    why = definition.why
    if definition.fine:
        # Asked last: one that is the same now was never away, and with another one a 404 is no news of the object.
        same = crd is None or await crd_uid(cluster, served.resource) == crd
        why = await doubt() if same else replaced(served.resource)
        if not why:
            return proofs
    held = Proof("held", None, why)
    known = {uid: proof for uid, proof in proofs.items() if proof.kind != "gone"}
    return {one.uid: known.get(one.uid, held) for one in missing}


async def _look(cluster: Cluster, served: Served, one: Missing) -> Proof:
    try:
        live = await cluster.get(served, one.namespace, one.name)
    except (Forbidden, NotFound, Unreadable) as error:
        return Proof("unknown", None, str(error))
    if live is not None and live.uid != one.uid:
        # Absence is confirmed by who reads it; a namesake may be one of another cluster just as well.
        await cluster.confirm()
        return Proof("gone")
    if live is None:
        return Proof("gone")
    return Proof("lives", live.without_raw())
