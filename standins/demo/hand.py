"""Somebody at the API server: makes the demo's objects, deletes them, and looks.
Everything here is the ordinary API, as any client calls it; what is seen is what the API server says."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from service.contract.names import CONDITION, CONTROLLER
from service.kubernetes import EVENTS, LEASES, NAMESPACES, Cluster, ClusterError, Seen, Served
from service.watching.shares import Share
from standins.demo.capi import AWS_CLUSTERS
from standins.demo.defining import define
from standins.demo.invention import NAMESPACES as PLACES
from standins.demo.invention import Invented, Thing
from standins.demo.karpenter import NODECLAIMS
from standins.demo.kinds import KINDS, Kind

HOME: Final = "knell"
"""The Namespace in which Knell keeps its Leases."""
SOURCES: Final = (*KINDS, AWS_CLUSTERS, NODECLAIMS)
_AT_ONCE: Final = 8


class _LeaseSpec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


class _Condition(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="type")
    status: str
    reason: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Object(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    reason: str = ""
    controller: str = msgspec.field(default="", name="reportingController")


class _Events(msgspec.Struct, frozen=True):
    items: list[_Event]


class Hand:
    def __init__(self, cluster: Cluster, invented: Invented) -> None:
        self._cluster, self._invented = cluster, invented
        self._served: dict[Kind, Served] = {}
        self.uids: dict[Thing, str] = {}

    # ---- making

    async def prepare(self) -> None:
        """Kinds and Namespaces; returns when the kinds are served."""
        for name, marks in {HOME: {}, **PLACES}.items():
            await self._cluster.create(NAMESPACES, "", {"metadata": {"name": name, "annotations": dict(marks)}})
        self._served = await define(self._cluster, KINDS)

    async def make(self) -> None:
        async def one(thing: Thing) -> None:
            made = await self._cluster.create(self._served[thing.kind], thing.namespace, thing.body())
            self.uids[thing] = made.uid

        await _each(self._invented.things, one)

    # ---- deleting

    async def delete(self, things: Iterable[Thing]) -> None:
        async def one(thing: Thing) -> None:
            await self._cluster.delete(self._served[thing.kind], thing.namespace, thing.name)

        await _each(things, one)

    async def delete_namespace(self, name: str) -> None:
        await self._cluster.delete(NAMESPACES, "", name)

    # ---- looking

    async def look(self) -> dict[str, Seen]:
        """The objects that are there, by uid."""
        found: dict[str, Seen] = {}
        for served in self._served.values():
            async for page in self._cluster.pages(served, None):
                found |= {seen.uid: seen.without_raw() for seen in page.items}
        return found

    async def has_namespace(self, name: str) -> bool:
        return await self._cluster.get(NAMESPACES, "", name) is not None

    async def holders(self) -> dict[str, str]:
        """Who watches each source, by the name of the process; those that nobody watches are left out."""
        found: dict[str, str] = {}
        for kind in SOURCES:
            path = LEASES.path(HOME, Share(kind.plural).lease)
            try:
                lease = msgspec.json.decode(await self._cluster.request("GET", path), type=_Lease)
            except ClusterError:
                continue
            if lease.spec.holder:
                found[kind.plural] = lease.spec.holder.rpartition("_")[0]
        return found

    async def condition(self, thing: Thing) -> str:
        """What the object says of its removal, in its own status."""
        found = await self._cluster.get(self._served[thing.kind], thing.namespace, thing.name)
        said = msgspec.json.decode(found.raw, type=_Object).status.conditions if found is not None else []
        ours = (one for one in said if one.kind == CONDITION)
        return next((f"{one.kind} is {one.status}: {one.reason}" for one in ours), "")

    async def events(self) -> Counter[str]:
        """Knell's Events, by reason; those of a Namespace that is gone went with it."""
        found = msgspec.json.decode(await self._cluster.request("GET", EVENTS.path()), type=_Events)
        return Counter(one.reason for one in found.items if one.controller == CONTROLLER)


async def _each(things: Iterable[Thing], work: Callable[[Thing], Awaitable[None]]) -> None:
    """A few at a time, in order. After the first trouble no more are begun, and it is raised as it is."""
    rest, failed = iter(things), list[ClusterError]()

    async def take() -> None:
        for thing in rest:
            try:
                await work(thing)
            except ClusterError as error:
                failed.append(error)
            if failed:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(take())
    if failed:
        raise failed[0]
