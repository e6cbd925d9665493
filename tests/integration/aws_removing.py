"""A stage for removals on AWS: a worker on a real server with a handler for every kind, and an account of its own in
the stand-in. `Hand` is a batch that a test hands to a handler itself, where it must know what exactly was asked."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest

from service.contract import Event, Feedback, Job, Plan, Record, Target, Verdict
from service.contract.version import VERSION
from service.settings import Settings
from service.settings.aws import AwsSettings
from standins.aws import Entry
from standins.aws.networks import Vpc
from tests.aws import Cloud
from tests.engine.outside import Outside, event
from tests.engine.world import Running, World
from tests.servers import TestServer
from workers.handlers.aws.kinds import KINDS, kind_named
from workers.handlers.aws.model import Kind, Owner, Whose
from workers.handlers.aws.reach import AwsReach
from workers.handlers.aws.removal import Removal
from workers.handlers.places import Places

QUICK = AwsSettings(check_after=timedelta(milliseconds=300), drain_check=timedelta(milliseconds=300))
REGION = "eu-west-1"


def named(name: str) -> Kind:
    kind = kind_named(name)
    assert kind is not None
    return kind


class Hand:
    """A batch of one lane, with a log of what the handler asked of the runtime."""

    def __init__(self, lane: str, jobs: Sequence[Job], *, clear: Exception | None = None) -> None:
        self.lane, self.jobs, self._clear = lane, jobs, clear
        self.cleared: list[str] = []
        self.told: list[Feedback] = []
        self.returned: dict[str, float] = {}

    async def clear(self, *jobs: Job) -> None:
        if self._clear is not None:
            raise self._clear
        self.cleared += [job.id for job in jobs]

    def tell(self, feedback: Feedback) -> None:
        self.told.append(feedback)

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        self.returned[limit] = self.returned.get(limit, 0.0) + tokens


class Removing:
    def __init__(self, world: World, cloud: Cloud, reach: AwsReach, since: int) -> None:
        self.world, self.cloud, self.reach, self.aws = world, cloud, reach, QUICK
        self._since = since
        self._outside = Outside(draws_on=lambda _lane: None)
        self._events = 0

    # ---- whose

    def owner(
        self, vpc: Vpc | None = None, *, name: str = "c1", by: Literal["ccm", "lbc"] = "ccm", snapshot: bool = False
    ) -> Owner:
        whose = Whose(source="clusters", namespace="tenant", region=REGION)
        return Owner(
            whose=whose, account=self.cloud.account, name=name, vpc=vpc.id if vpc else "", by=by, snapshot=snapshot,
            balancers=True,
        )  # fmt: skip

    def targets(self, owner: Owner, kind: str, *ids: str) -> list[Target]:
        of = named(kind)
        return [
            Target(
                kind=kind, id=one, lane=f"{owner.place}/{of.operation}", chain=of.chain, stage=of.stage,
                data=msgspec.json.encode(owner).decode(),
            )
            for one in ids
        ]  # fmt: skip

    # ---- with a worker

    async def go(self, *targets: Target, uid: str = "") -> Event:
        """A cluster goes that owns these; the answer is the event of its going."""
        self._events += 1
        one = event(uid or f"cluster-{self._events}")
        self._outside.plans[one.uid] = Plan(list(targets))
        await self.world.publish(one)
        return one

    async def start(self) -> Running:
        removals = [Removal(kind, self.reach, self.aws) for kind in KINDS]
        return await self.world.start(self._outside, others=removals)

    async def job(self, one: Event, target: str) -> dict[str, str]:
        """What is on record of the job of one target; nothing before it is planned."""
        if not (await self.world.deletion(one)).get("plan"):
            return {}
        for job, name in await self.world.targets_of(one):
            if name == target:
                return await self.world.job(job)
        return {}

    async def until(self, one: Event, target: str, verdict: str, words: str = "") -> dict[str, str]:
        async def look() -> dict[str, str]:
            record = await self.job(one, target)
            return record if record.get("verdict") == verdict and words in record.get("detail", "") else {}

        return await self.world.until(f"{target} is {verdict} {words}", look)

    async def remove(self, *targets: Target) -> Event:
        """All the way."""
        await self.start()
        one = await self.go(*targets)
        await self.world.until_done(one)
        return one

    # ---- by hand

    def hand(
        self, owner: Owner, kind: str, *ids: str, operation: str = "", clear: Exception | None = None, **record: Any
    ) -> Hand:
        lane = f"{owner.place}/{operation or named(kind).operation}"
        data = msgspec.json.encode(owner).decode()
        records = [
            Record(**{"v": VERSION, "stage": 0, "lane": lane, "kind": kind, "target": one, "data": data, **record})
            for one in ids
        ]
        return Hand(lane, [Job(f"deletion#1.{number}", 7, one) for number, one in enumerate(records)], clear=clear)

    async def attempt(self, hand: Hand) -> dict[str, Verdict | Exception]:
        """One attempt; the answer is by target."""
        removal = Removal(named(hand.jobs[0].kind), self.reach, self.aws)
        return {job.target: verdict async for job, verdict in removal.attempt(hand)}

    # ---- what AWS was asked

    async def asked(self, *actions: str) -> list[str]:
        """Actions in order, all or these, answered or not."""
        return [one.action for one in await self.journal(*actions)]

    async def journal(self, *actions: str) -> list[Entry]:
        entries = await self.cloud.aws.requests(since=self._since)
        mine = [one for one in entries if one.account == self.cloud.account and one.action != "sts.GetCallerIdentity"]
        return [one for one in mine if not actions or one.action in actions]


@asynccontextmanager
async def removing_on(world: World, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Removing]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIA{cloud.account}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # On a busy machine what was read may be old by the time that it is acted on.
    monkeypatch.setattr("workers.handlers.freshness.FRESH", timedelta(minutes=5))
    world.change("retry", blocked_base=timedelta(milliseconds=200), blocked_cap=timedelta(seconds=1))

    async def remembered() -> dict[str, str]:
        return {}

    async with AwsReach(Places(Settings(), {}, remembered), endpoint=cloud.aws.address) as reach:
        yield Removing(world, cloud, reach, len(await cloud.aws.journal()))


@pytest.fixture
async def removing(
    embedded_server: TestServer, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Removing]:
    world = World(embedded_server.server, embedded_server.settings())
    await world.arrive()
    try:
        async with removing_on(world, cloud, monkeypatch) as made:
            yield made
            for running in world.running:
                await running.stop()
    finally:
        await world.close()
