"""Other clusters that have the same name in their tags: two of one name, account and region share what is tagged.
Every AWSCluster and AWSManagedControlPlane that may be seen is listed, page by page, and only names are kept."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from service.cluster import Expired, NotServed, Served
from service.contract.aws import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CAPA
from service.policy.capi import stands_still
from service.settings import Settings
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Held, not_installed
from workers.handlers.aws.model import Reach, Whose
from workers.handlers.aws.owners import Subject, Unclear, subject_of
from workers.handlers.places import Place, Places, Shared

RECENT: Final = timedelta(seconds=5)
"""How old a list may be right before a destructive call: a cluster that is younger owns nothing yet, for its machines
have to start before anything in it can ask for a balancer. A plan has a list of its own."""

TRIES: Final = 3


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is there, as far as it matters to the others. `leaving` is when it began to go, for one that
    waits for us and is to be collected, too; empty for all others."""

    uid: str
    called: str
    whose: Whose
    accounts: tuple[str, ...]
    vpc: str
    leaving: str


Index = Mapping[tuple[str, str], tuple[Other, ...]]
"""By name in the tags and region; an empty region stands for one that is not known, and may be any."""


class Namesakes:
    def __init__(self, settings: Settings, places: Places, reach: Reach) -> None:
        self._settings, self._places, self._reach = settings, places, reach
        self._lists = Shared[str, Index](self._read)
        self._lately: dict[str, tuple[float, Index]] = {}

    async def of(self, subject: Subject, account: str, *, apart: bool, recent: bool = False) -> str | None:
        """How another object is called that may have tagged resources as this one's are, or None. With `apart`
        everything that is looked for is in a VPC. Raises Held where that can't be told, and ClusterError."""
        for source in self._one_per_cluster():
            index = await self._index(source, recent=recent)
            for key in ((subject.name, subject.region), (subject.name, "")):
                for other in index.get(key, ()):
                    if other.uid == subject.uid or (apart and _comes_after(other, subject)):
                        continue
                    if await self._may_be_in(other, account, subject):
                        return other.called
        return None

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
            for namespace in self._namespaces(place):
                for subject in await self._subjects(place, resource, namespace):
                    key = subject.name, subject.region
                    found[key] = (*found.get(key, ()), _other(subject, source, place))
        self._lately[source] = began, found
        return found

    async def _subjects(self, place: Place, resource: str, namespace: str | None) -> list[Subject]:
        for _ in range(TRIES):
            try:
                return await place.on(resource, partial(_listed, place, namespace))
            except Expired:
                continue
            except NotServed:
                # A kind that is not installed has no objects.
                await not_installed(place, resource)
                return []
        raise Held(f"{resource} of cluster {place.name} change faster than they can be listed")

    # ---- where

    def _one_per_cluster(self) -> Iterator[str]:
        seen = set[str]()
        for name, source in self._settings.sources.items():
            where = source.cluster or next(iter(self._settings.clusters), "")
            if source.collector == CAPA and where not in seen:
                seen.add(where)
                yield name

    def _namespaces(self, place: Place) -> tuple[str | None, ...]:
        """What is watched: all of them, where any source watches all."""
        found: dict[str | None, None] = {}
        for source in self._settings.sources.values():
            where = source.cluster or next(iter(self._settings.clusters), "")
            if source.collector == CAPA and where == place.name:
                if not source.namespaces:
                    return (None,)
                found.update(dict.fromkeys(source.namespaces))
        return tuple(found)


async def _listed(place: Place, namespace: str | None, served: Served) -> list[Subject]:
    found: list[Subject] = []
    async for page in place.cluster.pages(served, namespace):
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
        uid=subject.uid, called=f"{subject.called} of cluster {place.name}", whose=subject.whose(source),
        accounts=tuple(record.account for record in subject.records), vpc=subject.vpc,
        leaving=subject.deleting if leaves else "",
    )  # fmt: skip


def _comes_after(other: Other, subject: Subject) -> bool:
    """Two that go at the same time would wait for each other for ever. Where their VPCs tell them apart, the one that
    began to go first goes first."""
    if not (other.leaving and subject.deleting and other.vpc and subject.vpc and other.vpc != subject.vpc):
        return False
    return (subject.deleting, subject.uid) < (other.leaving, other.uid)
