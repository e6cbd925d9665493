"""Proof of absence: reads each missing object from the API server. Only a 404 for the object itself, or another uid
under its name, proves that it is gone, and only while its CRD is established and the cluster was not restored from a
backup."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

from service.kubernetes import (
    ClusterError,
    Forbidden,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
    Unreadable,
)
from service.kubernetes.discovery import crd_replaced

AT_ONCE: Final = 16
"""Concurrent reads of one source."""

T = TypeVar("T")
RestoreCheck = Callable[[], Awaitable[str]]
"""Returns why a cluster that seems to be restored from a backup proves nothing; empty if it is fine."""


class MissingObject(NamedTuple):
    uid: str
    namespace: str
    name: str


class AbsenceProof(NamedTuple):
    """`live` is set for `lives`; `why` says why nothing is proven for `held` and `unknown`."""

    kind: Literal["gone", "lives", "held", "unknown"]
    live: KubeObject | None = None
    why: str = ""


class CrdCheck(NamedTuple):
    """State of the CRD of a resource. `token` identifies this state, so that an operator can confirm it."""

    fine: bool
    why: str = ""
    token: str = ""


async def run_concurrently(items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """At most `at_once` at a time. After the first ClusterError no more are started, and it is raised without a
    group."""
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


async def check_crd(cluster: KubernetesClient, resource: str) -> CrdCheck:
    """A resource without a CRD is always fine."""
    state = await cluster.crd_state(resource)
    if state in ("built-in", "established"):
        return CrdCheck(True)
    uid = await cluster.crd_uid(resource) if state == "going" else ""
    what = "is being deleted" if state == "going" else "is not installed"
    return CrdCheck(False, f"the CRD of {resource} {what}", f"crd {uid}" if uid else "")


async def _no_doubt() -> str:
    return ""


async def prove_absence(
    cluster: KubernetesClient,
    served: ServedResource,
    missing: Sequence[MissingObject],
    crd: str | None = None,
    doubt: RestoreCheck = _no_doubt,
) -> dict[str, AbsenceProof]:
    """Raises errors that say nothing about the objects, such as Unavailable: then nothing is known of any of them.

    `crd` is the uid of the CRD that the objects were seen under, empty for a resource without one. Only with it does
    `gone` count as a deletion; a caller that needs just the live objects leaves it out. `doubt` is called after all
    reads, once for all of them.
    """
    proofs: dict[str, AbsenceProof] = {}

    async def read(one: MissingObject) -> None:
        proofs[one.uid] = await _read_object(cluster, served, one)

    unserved: NotServed | None = None
    try:
        await run_concurrently(missing, read)
    except NotServed as error:
        unserved = error
    if unserved is None and not any(proof.kind == "gone" for proof in proofs.values()):
        return proofs
    # After the reads: a CRD that was deleted in between took the objects with it.
    crd_check = await check_crd(cluster, served.resource)
    if crd_check.fine and unserved is not None:
        # It is served in another version by now: the caller discovers it and starts over.
        raise unserved
    why = crd_check.why
    if crd_check.fine:
        # Last of all: the same uid now means that the CRD was never deleted; under another one a 404 proves nothing.
        same = crd is None or await cluster.crd_uid(served.resource) == crd
        why = await doubt() if same else crd_replaced(served.resource)
        if not why:
            return proofs
    held = AbsenceProof("held", None, why)
    known = {uid: proof for uid, proof in proofs.items() if proof.kind != "gone"}
    return {one.uid: known.get(one.uid, held) for one in missing}


async def _read_object(cluster: KubernetesClient, served: ServedResource, one: MissingObject) -> AbsenceProof:
    try:
        live = await cluster.get(served, one.namespace, one.name)
    except (Forbidden, NotFound, Unreadable) as error:
        return AbsenceProof("unknown", None, str(error))
    if live is not None and live.uid != one.uid:
        # A 404 is confirmed by the client itself; an object with another uid may be one of another cluster.
        await cluster.confirm()
        return AbsenceProof("gone")
    if live is None:
        return AbsenceProof("gone")
    return AbsenceProof("lives", live.without_raw())
