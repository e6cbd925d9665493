"""Other clusters that have the same name in their tags: two of one name, account and region share what is tagged.
Every AWSCluster and AWSManagedControlPlane is listed, in all namespaces, watched or not, page by page; only names are
kept."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.contract.aws import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CAPA, Task
from service.kubernetes import Expired, Forbidden, NotServed, Served
from service.policy.capi import stands_still
from service.settings import Settings
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import LATER, Held, not_installed
from workers.handlers.aws.model import Reach, Whose
from workers.handlers.aws.owners import Subject, Unclear, subject_of
from workers.handlers.aws.tasks import NOWHERE
from workers.handlers.places import Place, Places, Shared

RECENT: Final = timedelta(seconds=5)
"""How old a list may be right before a destructive call: a cluster that is younger owns nothing yet, for its machines
have to start before anything in it can ask for a balancer. A plan has a list of its own, and so has every call of an
object that wants something gone which is in no VPC."""

TRIES: Final = 3


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is there, as far as it matters to the others; `name` is what stands in its tags. `leaving` is
    when it began to go, for one that waits for us and is to be collected, too; empty for all others."""

    uid: str
    resource: str
    object: str
    name: str
    called: str
    whose: Whose
    accounts: tuple[str, ...]
    vpc: str
    leaving: str


Index = Mapping[tuple[str, str], tuple[Other, ...]]
"""By name in the tags and region; an empty region stands for one that is not known, and may be any."""


class InTheWay(NamedTuple):
    """Why two that are going can't go side by side, empty for one that lives; what `waits` ends without a person."""

    why: str = ""
    waits: bool = False


class Namesake(NamedTuple):
    """How it is called, and in which way it is in the way."""

    called: str
    way: InTheWay


Objection = Callable[[Other, Whose, str, Collection[Task]], Awaitable[InTheWay | None]]
"""Why what tasks are about can't go as long as another that is leaving is there, as `leaving` says it."""


class Namesakes:
    """`objection` is about tasks whose resources are in no VPC."""

    def __init__(self, settings: Settings, places: Places, reach: Reach, objection: Objection) -> None:
        self._settings, self._places, self._reach, self._objection = settings, places, reach, objection
        self._lists = Shared[str, Index](self._read)
        self._lately: dict[str, tuple[float, Index]] = {}

    async def of(
        self, subject: Subject, source: str, account: str, tasks: Collection[Task], *, recent: bool = False
    ) -> Namesake | None:
        """Another object that may have tagged resources as this one's are, which these tasks would remove; None where
        there is none. Raises Held where that can't be told, and ClusterError."""
        async for other in self._others(subject, account, recent=recent):
            if (way := await self._in_the_way(other, subject, source, account, tasks)) is not None:
                return Namesake(other.called, way)
        return None

    async def all_elsewhere(self, subject: Subject, account: str) -> bool:
        """Whether the VPC of each of its namesakes is known and another than its own. Raises as `of` does."""
        return all([_elsewhere(other, subject) async for other in self._others(subject, account, recent=True)])

    async def _others(self, subject: Subject, account: str, *, recent: bool) -> AsyncIterator[Other]:
        for listing in self._one_per_cluster():
            index = await self._index(listing, recent=recent)
            for key in ((subject.name, subject.region), (subject.name, "")):
                for other in index.get(key, ()):
                    if other.uid != subject.uid and await self._may_be_in(other, account, subject):
                        yield other

    async def _in_the_way(
        self, other: Other, subject: Subject, source: str, account: str, tasks: Collection[Task]
    ) -> InTheWay | None:
        """None where both can go. Two that go at the same time would else wait for each other for ever."""
        if not (other.leaving and subject.deleting):
            return InTheWay()
        nowhere = NOWHERE & {*tasks}
        if nowhere != {*tasks} and not _elsewhere(other, subject):
            return InTheWay("their VPCs don't tell them apart")
        if nowhere:
            # Side by side, not one after the other: an address may be in use by what the other has still to remove.
            return await self._objection(other, subject.whose(source), account, sorted(nowhere))
        # The one that began to go first goes first.
        first = (subject.deleting, subject.uid) < (other.leaving, other.uid)
        return None if first else InTheWay("it began to go first", waits=True)

    async def aclose(self) -> None:
        await self._lists.aclose()

    # ---- whose account

    async def _may_be_in(self, other: Other, account: str, subject: Subject) -> bool:
        """Only what is known to be in another account is not in this one."""
        if other.accounts:
            return account in other.accounts
        if other.whose.identity == subject.identity or not other.whose.region:
            return True
        try:
            calls = await self._reach.calls(other.whose)
        except (AwsError, NoAccess):
            return True
        return calls.account == account

    # ---- lists

    async def _index(self, source: str, *, recent: bool) -> Index:
        known = self._lately.get(source)
        if recent and known is not None and time.monotonic() < known[0] + RECENT.total_seconds():
            return known[1]
        return await asyncio.shield(self._lists.ask(source))

    async def _read(self, source: str) -> Index:
        began = time.monotonic()
        place = self._places.of(source)
        if place is None:
            raise Held(f"this process has no way to the cluster of source {source}, where namesakes may live")
        found: dict[tuple[str, str], tuple[Other, ...]] = {}
        for resource in (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES):
            for subject in await self._subjects(place, resource):
                key = subject.name, subject.region
                found[key] = (*found.get(key, ()), _other(subject, source, place))
        # Asked last: a namesake that is missing in a cluster restored from a backup may own what has that name.
        if why := await self._places.doubt(source, await place.identity()):
            raise Held(why)
        self._lately[source] = began, found
        return found

    async def _subjects(self, place: Place, resource: str) -> list[Subject]:
        for _ in range(TRIES):
            try:
                return await place.on(resource, partial(_listed, place))
            except Expired:
                continue
            except Forbidden as error:
                raise Held(
                    f"{resource} can't be listed in all namespaces of cluster {place.name}, so nobody knows whether a "
                    f"namesake lives: {error}; allow it, as `knell role` does",
                    LATER,
                ) from None
            except NotServed:
                # A kind that is not installed has no objects.
                await not_installed(place, resource)
                return []
        raise Held(f"{resource} of cluster {place.name} change faster than they can be listed", waits=True)

    # ---- where

    def _one_per_cluster(self) -> Iterator[str]:
        seen = set[str]()
        for name, source in self._settings.sources.items():
            where = source.cluster or next(iter(self._settings.clusters), "")
            if source.collector == CAPA and where not in seen:
                seen.add(where)
                yield name


async def _listed(place: Place, served: Served) -> list[Subject]:
    found: list[Subject] = []
    async for page in place.cluster.pages(served, None):
        if page.unreadable:
            raise Held(f"the list of {served.resource} is not whole, namesakes may be missing: {page.unreadable[0]}")
        for item in page.items:
            try:
                found.append(subject_of(served.resource, item.raw))
            except Unclear as error:
                raise Held(f"{served.resource} {item.namespace}/{item.name} may be a namesake, but {error}") from None
    return found


def _other(subject: Subject, source: str, place: Place) -> Other:
    leaves = subject.marked and stands_still(subject.annotations) is None
    return Other(
        uid=subject.uid, resource=subject.resource, object=subject.object, name=subject.name,
        called=f"{subject.called} of cluster {place.name}", whose=subject.whose(source),
        accounts=tuple(record.account for record in subject.records), vpc=subject.vpc,
        leaving=subject.deleting if leaves else "",
    )  # fmt: skip


def _elsewhere(other: Other, subject: Subject) -> bool:
    """Whether what is in a VPC is told apart by that."""
    return bool(other.vpc and subject.vpc) and other.vpc != subject.vpc
