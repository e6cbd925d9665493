"""Namesakes: other clusters with the same name in their tags. Two of one name, account and region share all tagged
resources. Every AWSCluster and AWSManagedControlPlane is listed, in all namespaces, watched or not, page by page; only
their names are kept."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.coalesced_reads import CoalescedReads
from service.kubernetes import Expired, Forbidden, NotServed, ServedResource
from service.policy.capi import pause_or_move
from service.settings import Settings
from service.sources.capa import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CAPA, Task
from workers.collectors.capa.capa_object import CapaObject, UnusableObject, parse_capa_object
from workers.collectors.capa.kinds import TASKS_OUTSIDE_VPC
from workers.collectors.capa.preconditions import RETRY_LATER, PreconditionFailed, require_not_installed
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import AwsClients, CallScope

MAX_LIST_AGE: Final = timedelta(seconds=5)
"""How old a list may be right before a destructive call: a younger cluster owns nothing yet, because its machines have
to start before anything in it can create a load balancer. A plan reads a new list, and so does every call for an object
whose tasks remove resources outside a VPC."""

MAX_TRIES: Final = 3


class NamesakeCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One existing object, as far as it matters to others; `name` is the one in its tags. `deleting_since` is set if it
    is being deleted, waits for our finalizer and is to be collected, too; else empty."""

    uid: str
    resource: str
    object: str
    name: str
    label: str
    scope: CallScope
    accounts: tuple[str, ...]
    vpc: str
    deleting_since: str


Index = Mapping[tuple[str, str], tuple[NamesakeCandidate, ...]]
"""By name in tags and region; an empty region is unknown and may be any."""


class NamesakeConflict(NamedTuple):
    """Why two clusters in deletion can't be collected side by side; empty if the other one lives. With `waits` the
    conflict ends without an operator."""

    why: str = ""
    waits: bool = False


class Namesake(NamedTuple):
    """The other cluster and the conflict with it."""

    label: str
    conflict: NamesakeConflict


ConflictCheck = Callable[[NamesakeCandidate, CallScope, str, Collection[Task]], Awaitable[NamesakeConflict | None]]
"""Why resources of these tasks can't be deleted while a namesake in deletion exists; see `deleting_namesakes`."""


class Namesakes:
    """`conflict_check` is for tasks whose resources are outside a VPC."""

    def __init__(
        self, settings: Settings, places: SourceClusters, clients: AwsClients, conflict_check: ConflictCheck
    ) -> None:
        self._settings, self._places, self._clients, self._conflict_check = settings, places, clients, conflict_check
        self._lists = CoalescedReads.by_key(self._read)
        self._lately: dict[str, tuple[float, Index]] = {}

    async def of(
        self, subject: CapaObject, source: str, account: str, tasks: Collection[Task], *, recent: bool = False
    ) -> Namesake | None:
        """Another object whose resources may carry the same tags, among those that these tasks would remove; None if
        there is none. Raises PreconditionFailed if that can't be determined, and ClusterError."""
        async for other in self._others(subject, account, recent=recent):
            if (conflict := await self._conflict(other, subject, source, account, tasks)) is not None:
                return Namesake(other.label, conflict)
        return None

    async def all_in_other_vpcs(self, subject: CapaObject, account: str) -> bool:
        """Whether the VPC of each namesake is known and differs from its own. Raises like `of`."""
        return all([_in_other_vpc(other, subject) async for other in self._others(subject, account, recent=True)])

    async def _others(self, subject: CapaObject, account: str, *, recent: bool) -> AsyncIterator[NamesakeCandidate]:
        for listing in self._one_per_cluster():
            index = await self._index(listing, recent=recent)
            for key in ((subject.name, subject.region), (subject.name, "")):
                for other in index.get(key, ()):
                    if other.uid != subject.uid and await self._may_be_in(other, account, subject):
                        yield other

    async def _conflict(
        self, other: NamesakeCandidate, subject: CapaObject, source: str, account: str, tasks: Collection[Task]
    ) -> NamesakeConflict | None:
        """None if both can be collected; else two in deletion would wait for each other forever."""
        if not (other.deleting_since and subject.deletion_timestamp):
            return NamesakeConflict()
        nowhere = TASKS_OUTSIDE_VPC & {*tasks}
        if nowhere != {*tasks} and not _in_other_vpc(other, subject):
            return NamesakeConflict("their VPCs don't tell them apart")
        if nowhere:
            # Concurrently, not in order: an address may be in use by what the other has yet to remove.
            return await self._conflict_check(other, subject.scope(source), account, sorted(nowhere))
        # The deletion that began first is collected first.
        first = (subject.deletion_timestamp, subject.uid) < (other.deleting_since, other.uid)
        return None if first else NamesakeConflict("its deletion began first", waits=True)

    async def aclose(self) -> None:
        await self._lists.aclose()

    # ---- accounts

    async def _may_be_in(self, other: NamesakeCandidate, account: str, subject: CapaObject) -> bool:
        """False only if it is known to be in another account."""
        if other.accounts:
            return account in other.accounts
        if other.scope.identity == subject.identity or not other.scope.region:
            return True
        try:
            client = await self._clients.client(other.scope)
        except (AwsError, NoAccess):
            return True
        return client.account == account

    # ---- lists

    async def _index(self, source: str, *, recent: bool) -> Index:
        known = self._lately.get(source)
        if recent and known is not None and time.monotonic() < known[0] + MAX_LIST_AGE.total_seconds():
            return known[1]
        return await self._lists.read(source)

    async def _read(self, source: str) -> Index:
        began = time.monotonic()
        place = self._places.of(source)
        if place is None:
            raise PreconditionFailed(
                f"this process has no way to the cluster of source {source}, where namesakes may live"
            )
        found: dict[tuple[str, str], tuple[NamesakeCandidate, ...]] = {}
        for resource in (AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES):
            for subject in await self._subjects(place, resource):
                key = subject.name, subject.region
                found[key] = (*found.get(key, ()), _candidate(subject, source, place))
        # Checked last: in a cluster restored from a backup, a missing namesake may own resources of that name.
        if why := await self._places.doubt(source, await place.identity()):
            raise PreconditionFailed(why)
        self._lately[source] = began, found
        return found

    async def _subjects(self, place: SourceCluster, resource: str) -> list[CapaObject]:
        for _ in range(MAX_TRIES):
            try:
                return await place.on(resource, partial(_listed, place))
            except Expired:
                continue
            except Forbidden as error:
                raise PreconditionFailed(
                    f"{resource} can't be listed in all namespaces of cluster {place.name}, so it is unknown whether a "
                    f"namesake lives: {error}; allow it, as `knell role` does",
                    RETRY_LATER,
                ) from None
            except NotServed:
                # A resource that is not installed has no objects.
                await require_not_installed(place, resource)
                return []
        raise PreconditionFailed(
            f"{resource} of cluster {place.name} change faster than they can be listed", waits=True
        )

    # ---- clusters

    def _one_per_cluster(self) -> Iterator[str]:
        seen = set[str]()
        for name, source in self._settings.sources.items():
            where = source.cluster or next(iter(self._settings.clusters), "")
            if source.collector == CAPA and where not in seen:
                seen.add(where)
                yield name


async def _listed(place: SourceCluster, served: ServedResource) -> list[CapaObject]:
    found: list[CapaObject] = []
    async for page in place.client.pages(served, None):
        if page.unreadable:
            raise PreconditionFailed(
                f"the list of {served.resource} is not whole, namesakes may be missing: {page.unreadable[0]}"
            )
        for item in page.items:
            try:
                found.append(parse_capa_object(served.resource, item.raw))
            except UnusableObject as error:
                raise PreconditionFailed(
                    f"{served.resource} {item.namespace}/{item.name} may be a namesake, but {error}"
                ) from None
    return found


def _candidate(subject: CapaObject, source: str, place: SourceCluster) -> NamesakeCandidate:
    leaves = subject.has_finalizer and pause_or_move(subject.annotations) is None
    return NamesakeCandidate(
        uid=subject.uid, resource=subject.resource, object=subject.object, name=subject.name,
        label=f"{subject.label} of cluster {place.name}", scope=subject.scope(source),
        accounts=tuple(record.account for record in subject.records), vpc=subject.vpc,
        deleting_since=subject.deletion_timestamp if leaves else "",
    )  # fmt: skip


def _in_other_vpc(other: NamesakeCandidate, subject: CapaObject) -> bool:
    """Whether resources in a VPC can be told apart by it."""
    return bool(other.vpc and subject.vpc) and other.vpc != subject.vpc
