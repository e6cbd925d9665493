"""Fixtures for removals on AWS: a worker on a real server with a handler for every kind, and a separate account in the
stand-in. `AwsRecordingBatch` is a batch that a test passes to a handler directly, to see exactly what it requests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest

from service.contract import Event, Job, JobRecord, Plan, Target, Verdict
from service.contract.version import VERSION
from service.sources.capa import CAPA, AwsSettings
from standins.aws import AwsJournalEntry
from standins.aws.builder import Vpc
from tests.aws import AwsTestAccount
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.engine.scripted_provider import ScriptedProvider, event
from tests.integration.capa_states import record_object, record_objects
from tests.recording_batch import RecordingBatch
from tests.redis_servers import TestServer
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.judge import CapaJudge
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.latest_objects import LatestObjects
from workers.handlers.kept_resources import NoKeptRecords
from workers.providers.aws.claims import ClaimRegistry
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.kind_calls import AwsKindCalls, RemovalContext
from workers.providers.aws.kinds import KINDS, kind_named
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import CallScope
from workers.providers.aws.rechecks import ConsentRechecks
from workers.removal import Removal

QUICK = AwsSettings(check_after=timedelta(milliseconds=300), drain_check=timedelta(milliseconds=300))
REGION = "eu-west-1"
SOURCE = "clusters"
OWNER_SCOPE = CallScope(source=SOURCE, namespace="tenant", region=REGION)
"""Of all owners here."""
LIMITS = AwsLimits(KINDS)


def named(name: str) -> AwsKind:
    kind = kind_named(name)
    assert kind is not None
    return kind


def no_sources(source: str) -> str:
    """The collector of a source in settings that have none."""
    del source
    return ""


def capa_claims(
    settings: AwsSettings, *consented: str, account: str = "", latest_objects: LatestObjects | None = None
) -> ClaimRegistry:
    """Claims of clusters. To these deletions their collector has consented, for objects of that account;
    `latest_objects` has what it read of them."""
    claims = ClaimRegistry(lambda source: CAPA if source == SOURCE else "")
    claims.add(CAPA, CapaJudge(settings, latest_objects or LatestObjects()))
    for deletion in consented:
        claims.consented(CAPA, deletion, OWNER_SCOPE, account)
    return claims


def aws_removal(kind: AwsKind, reach: SdkClients, settings: AwsSettings, claims: ClaimRegistry) -> Removal[Any]:
    context = RemovalContext(reach, settings, claims, reach.limits, ConsentRechecks())
    return Removal(AwsKindCalls(kind, context), NoKeptRecords())


class AwsRecordingBatch(RecordingBatch):
    """A batch of one lane of AWS, which reserves what that lane draws on."""

    def __init__(self, lane: str, jobs: Sequence[Job], *, clear: Exception | None = None) -> None:
        super().__init__(lane, jobs, LIMITS.of_lane(lane) or (), clear=clear)


class AwsRemovalFixture:
    def __init__(self, engine: EngineUnderTest, cloud: AwsTestAccount, reach: SdkClients, since: int) -> None:
        self.engine, self.cloud, self.reach, self.aws = engine, cloud, reach, QUICK
        self._since = since
        self._provider = ScriptedProvider(draws_on=lambda _lane: None)
        self._events = 0
        self._deletions, self._claims = list[str](), list[ClaimRegistry]()
        self._latest_objects = LatestObjects()

    # ---- owners

    @property
    def judge(self) -> CapaJudge:
        return CapaJudge(self.aws, LatestObjects())

    def owner(
        self, vpc: Vpc | None = None, *, name: str = "c1", by: Literal["ccm", "lbc"] = "ccm", snapshot: bool = False
    ) -> CapaClaim:
        return CapaClaim(
            scope=OWNER_SCOPE, account=self.cloud.account, name=name, vpc=vpc.id if vpc else "", by=by,
            snapshot=snapshot, balancers=True,
        )  # fmt: skip

    def targets(self, owner: CapaClaim, kind: str, *ids: str) -> list[Target]:
        of = CAPA_KINDS[kind]
        return [
            Target(
                kind=kind, id=one, lane=f"{owner.place}/{of.kind.delete_operation}", chain=of.chain, stage=of.stage,
                data=msgspec.json.encode(owner).decode(),
            )
            for one in ids
        ]  # fmt: skip

    # ---- with a worker

    async def go(self, *targets: Target, uid: str = "") -> Event:
        """Deletes a cluster that owns these; returns the event."""
        self._events += 1
        one = event(uid or f"cluster-{self._events}")
        self._provider.plans[one.uid] = Plan(list(targets))
        self._deletions.append(one.deletion)
        for target in targets:
            record_object(self._latest_objects, one.deletion, target.data)
        for claims in self._claims:
            claims.consented(CAPA, one.deletion, OWNER_SCOPE, self.cloud.account)
        await self.engine.publish(one)
        return one

    async def start(self) -> RunningWorker:
        claims = capa_claims(
            self.aws, *self._deletions, account=self.cloud.account, latest_objects=self._latest_objects
        )
        self._claims.append(claims)
        removals = [aws_removal(kind, self.reach, self.aws, claims) for kind in KINDS]
        return await self.engine.start(self._provider, others=removals)

    async def job(self, one: Event, target: str) -> dict[str, str]:
        """The record of the job of one target; empty before it is planned."""
        if not (await self.engine.deletion(one)).get("plan"):
            return {}
        for job, name in await self.engine.targets_of(one):
            if name == target:
                return await self.engine.job(job)
        return {}

    async def until(self, one: Event, target: str, verdict: str, words: str = "") -> dict[str, str]:
        async def look() -> dict[str, str]:
            record = await self.job(one, target)
            return record if record.get("verdict") == verdict and words in record.get("detail", "") else {}

        return await self.engine.until(f"{target} is {verdict} {words}", look)

    async def remove(self, *targets: Target) -> Event:
        """Deletes a cluster and waits until it is done."""
        await self.start()
        one = await self.go(*targets)
        await self.engine.until_done(one)
        return one

    # ---- single attempts

    def batch(
        self,
        owner: CapaClaim,
        kind: str,
        *ids: str,
        operation: str = "",
        clear: Exception | None = None,
        **record: Any,
    ) -> AwsRecordingBatch:
        lane = f"{owner.place}/{operation or named(kind).delete_operation}"
        data = msgspec.json.encode(owner).decode()
        records = [
            JobRecord(**{"v": VERSION, "stage": 0, "lane": lane, "kind": kind, "target": one, "data": data, **record})
            for one in ids
        ]
        return AwsRecordingBatch(
            lane, [Job(f"deletion#1.{number}", 7, one) for number, one in enumerate(records)], clear=clear
        )

    async def attempt(self, batch: AwsRecordingBatch) -> dict[str, Verdict | Exception]:
        """One attempt; verdicts by target."""
        deletions = {job.deletion for job in batch.jobs}
        objects = record_objects(LatestObjects(), batch.jobs)
        claims = capa_claims(self.aws, *deletions, account=self.cloud.account, latest_objects=objects)
        removal = aws_removal(named(batch.jobs[0].kind), self.reach, self.aws, claims)
        return {job.target: verdict async for job, verdict in removal.attempt(batch)}

    # ---- calls to AWS

    async def asked(self, *actions: str) -> list[str]:
        """Actions in order, all or these, answered or not."""
        return [one.action for one in await self.journal(*actions)]

    async def journal(self, *actions: str) -> list[AwsJournalEntry]:
        entries = await self.cloud.aws.requests(since=self._since)
        mine = [one for one in entries if one.account == self.cloud.account and one.action != "sts.GetCallerIdentity"]
        return [one for one in mine if not actions or one.action in actions]


@asynccontextmanager
async def aws_removal_on(
    engine: EngineUnderTest, cloud: AwsTestAccount, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsRemovalFixture]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIA{cloud.account}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # On a busy machine a read may be outdated by the time it is used.
    monkeypatch.setattr("workers.handlers.evidence_age.FRESH", timedelta(minutes=5))
    engine.change("retry", blocked_base=timedelta(milliseconds=200), blocked_cap=timedelta(seconds=1))

    async with SdkClients(AwsLimits(KINDS), no_sources, endpoint=cloud.aws.address) as reach:
        yield AwsRemovalFixture(engine, cloud, reach, len(await cloud.aws.journal()))


@pytest.fixture
async def removing(
    embedded_server: TestServer, cloud: AwsTestAccount, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AwsRemovalFixture]:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await engine.arrive()
    try:
        async with aws_removal_on(engine, cloud, monkeypatch) as made:
            yield made
            for running in engine.running:
                await running.stop()
    finally:
        await engine.close()
