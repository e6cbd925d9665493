"""The course of the demo: objects are made, deleted with the ordinary API, and followed until they are gone.
In the middle the replica that watches is killed, and a Namespace is deleted before another has taken its place."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

from service.contract.names import FINALIZER
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.views.deletions import DeletionView, list_deletions
from service.kubernetes import connect
from service.web.numbers import read_numbers
from standins.demo.cluster_on_aws import ClusterOnAws
from standins.demo.failing import DemoFailed
from standins.demo.hand import SOURCES, Hand
from standins.demo.invention import PREVIEW
from standins.demo.kinds import CLUSTERS, MACHINES
from standins.demo.ledger import Ledger
from standins.demo.node_on_azure import NodeOnAzure
from standins.demo.picture import Picture
from standins.demo.reckoning import AwsSummary
from standins.demo.reservation import AzureSummary
from standins.demo.subplot import Subplot
from standins.demo.summary import Evidence, Summary, judge, sum_up
from standins.demo.troupe import CLUSTER, Troupe

_FRAME: Final = 0.25
_LOOK_EVERY: Final = 1.0
"""Seconds between two lists of all objects; the numbers in Redis cost less."""
_KILL_AT: Final = 0.3
"""The part of all resources that is gone when a replica is killed."""
_WATCHED_WITHIN: Final = 30.0
_MOST: Final = 10_000

T = TypeVar("T")


async def play(troupe: Troupe, picture: Picture, length: timedelta) -> tuple[Summary, list[str]]:
    """Everything from the first object to the last; answers what came of it, and what went wrong."""
    settings = troupe.settings()
    # Its own interpreter takes a second to start, in which there is enough to do here.
    replicas = [troupe.add_replica(), troupe.add_replica()]
    async with AsyncExitStack() as stack:
        installation = Installation(settings, name="knell-demo")
        stack.push_async_callback(installation.aclose)
        cluster = await stack.enter_async_context(await connect(CLUSTER, settings.clusters[CLUSTER]))
        hand, tenant = Hand(cluster, picture.invented), ClusterOnAws(troupe.aws, cluster, picture)
        stack.push_async_callback(tenant.aclose)
        aws = Subplot(tenant, picture)
        azure = Subplot(NodeOnAzure(troupe.azure, cluster, installation, picture), picture, after=aws.underway)
        course = _Course(troupe, picture, hand, installation, (aws, azure))
        picture.ledger = Ledger(troupe.provider.log, picture.invented.ours)
        with picture.live():
            await hand.prepare()
            await aws.prepare()
            await azure.prepare()
            async with _beside(aws.run()) as first, _beside(azure.run()) as second:
                await course.prepare(replicas)
                done = await course.run(time.monotonic() + 3 * length.total_seconds() + 30, (first, second))
        evidence = await course.evidence()
    summary = sum_up(picture.invented, evidence)
    problems = [f"{name} ended by itself: {troupe.last_words(name)}" for name in troupe.fallen()]
    problems += judge(picture.invented, summary)
    return summary, problems if done or problems else ["it was not over in time"]


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Goes on meanwhile, and ends with it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _watched_by(replica: str, holders: Mapping[str, str]) -> str:
    watched = [source for source, name in holders.items() if name == replica]
    return f"all {len(SOURCES)} sources" if len(watched) == len(SOURCES) else ", ".join(watched) or "nothing"


class _Course:
    def __init__(
        self,
        troupe: Troupe,
        picture: Picture,
        hand: Hand,
        installation: Installation,
        subplots: tuple[Subplot[AwsSummary], Subplot[AzureSummary]],
    ) -> None:
        self._troupe, self._picture, self._installation = troupe, picture, installation
        self._hand, self._invented = hand, picture.invented
        self._aws, self._azure = subplots
        self._looked = 0.0
        self._killed = ""
        self._killed_at = 0.0
        self._taken_over: timedelta | None = None

    # ---- before

    async def prepare(self, replicas: list[str]) -> None:
        """Until every object is either held back by our finalizer or known to the inventory."""
        await self._hand.make()
        self._picture.say(
            f"{len(self._invented.things)} objects made; {' and '.join(replicas)} are about to watch them"
        )
        deadline = time.monotonic() + _WATCHED_WITHIN
        while not await self._watched():
            if fallen := self._troupe.fallen():
                raise DemoFailed(f"{fallen[0]} ended at once: {self._troupe.last_words(fallen[0])}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"the objects are not watched: {self._troupe.last_words(replicas[0])}")
            await asyncio.sleep(_FRAME / 2)

    async def _watched(self) -> bool:
        self._picture.there = there = await self._hand.look()
        wanted = {thing: uid for thing, uid in self._hand.uids.items() if thing.watched}
        marked = all(FINALIZER in there[uid].finalizers for thing, uid in wanted.items() if thing.kind is CLUSTERS)
        observed = [uid for thing, uid in wanted.items() if thing.kind is MACHINES]
        known = await Inventory(self._installation, MACHINES.plural).recall(observed)
        return marked and len(known) == len(observed)

    # ---- while it goes on

    async def run(self, deadline: float, asides: "tuple[asyncio.Task[None], ...]") -> bool:
        """Until all is done, also what goes on aside, or far too much time has passed."""
        first = [thing for thing in self._invented.things if thing.fate != "lives" and thing.namespace != PREVIEW]
        await self._hand.delete(first)
        self._picture.say(f"{len(first)} of them deleted, one by one: plain DELETE calls")
        async with _beside(self._troupe.compete("compute")):
            while time.monotonic() < deadline and not self._troupe.fallen():
                await asyncio.sleep(_FRAME)
                await self._look()
                self._picture.progress()
                await self._strike()
                await self._follow()
                for aside in asides:
                    if aside.done():
                        aside.result()
                if all(aside.done() for aside in asides) and await self._finished():
                    return True
        return False

    async def _look(self) -> None:
        picture = self._picture
        picture.numbers = await read_numbers(self._installation.connections.client, self._installation.keys)
        picture.released = int(sum(shard.counters["done"] for shard in picture.numbers))
        if picture.ledger is not None:
            picture.ledger.catch_up()
        if time.monotonic() - self._looked > _LOOK_EVERY:
            picture.there = await self._hand.look()
            self._looked = time.monotonic()

    async def _strike(self) -> None:
        """Who watches is killed, while interfaces drain on AWS and one is reserved on Azure; what is deleted then is
        seen by nobody: it has to be found."""
        book = self._picture.ledger
        if self._killed or book is None or book.removed < _KILL_AT * len(self._invented.ours):
            return
        if not (self._aws.underway.is_set() and self._azure.underway.is_set()):
            return
        holders = await self._hand.holders()
        self._killed = self._troupe.kill_replica(holders.get(CLUSTERS.plural, ""))
        self._killed_at = time.monotonic()
        book.killed[self._killed] = time.time()
        await self._hand.delete_namespace(PREVIEW)
        self._picture.say(f"kill -9 of {self._killed}, which watched {_watched_by(self._killed, holders)}")
        self._picture.say(f"Namespace {PREVIEW} deleted meanwhile, and {self._troupe.add_replica()} started")

    async def _follow(self) -> None:
        """Who watches what the killed one watched?"""
        if not self._killed or self._taken_over is not None:
            return
        holders = await self._hand.holders()
        if holders and self._killed not in holders.values():
            self._taken_over = timedelta(seconds=round(time.monotonic() - self._killed_at, 1))
            names = sorted(set(holders.values()))
            told = "; ".join(f"{name} watches {_watched_by(name, holders)}" for name in names)
            self._picture.say(f"{told}: {self._taken_over.total_seconds():.1f} s after the kill")

    async def _finished(self) -> bool:
        if self._picture.released < self._invented.to_release or self._taken_over is None:
            return False
        self._picture.there = there = await self._hand.look()
        if any(self._hand.uids[thing] in there for thing in self._invented.things if not thing.remains):
            return False
        held = await self._deletions("held")
        return len(held) == len(self._invented.of_fate("protected")) and not await self._hand.has_namespace(PREVIEW)

    # ---- after

    async def evidence(self) -> Evidence:
        picture = self._picture
        took = timedelta(seconds=round(time.monotonic() - picture.started, 1))
        state = await self._troupe.settle()
        if picture.ledger is None:
            raise DemoFailed("there is no log of the provider")
        picture.ledger.catch_up()
        return Evidence(
            api=self._troupe.api.kind,
            ledger=picture.ledger,
            state=state,
            uids=self._hand.uids,
            there=await self._hand.look(),
            namespace_left=await self._hand.has_namespace(PREVIEW),
            conditions={thing: await self._hand.condition(thing) for thing in self._invented.of_fate("protected")},
            events=await self._hand.events(),
            deletions=[*await self._deletions("done"), *await self._deletions("held")],
            numbers=await read_numbers(self._installation.connections.client, self._installation.keys),
            taken_over=self._taken_over,
            took=took,
            aws=await self._aws.summary(),
            azure=await self._azure.summary(),
        )

    async def _deletions(self, state: str) -> list[DeletionView]:
        return (await list_deletions(self._installation, state=state, limit=_MOST)).deletions
