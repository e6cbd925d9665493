"""Fixture for removals of AWS resources by identifier: as `aws_removal`, with the kinds that collectors add to the
provider, and a collector of the tests that recognises its resources by one tag."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from service.contract import Event, Job, JobRecord, Plan, Target, Verdict
from service.contract.version import VERSION
from service.sources.aws import AwsAccess
from standins.aws.tags import Tags, named
from tests.aws import AwsTestAccount
from tests.aws_identifier_kinds import IDENTIFIER_ROWS
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.engine.scripted_provider import ScriptedProvider, event
from tests.integration.aws_removal import QUICK, REGION, SOURCE, AwsRemovalFixture, aws_removal_on
from tests.recording_batch import RecordingBatch
from tests.redis_servers import TestServer
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords
from workers.providers.aws.claims import ClaimRegistry, Kept
from workers.providers.aws.kind_calls import AwsKindCalls, RemovalContext
from workers.providers.aws.kinds import IDENTIFIER_KINDS
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClaim, AwsResource, CallScope
from workers.providers.aws.rechecks import ConsentRechecks
from workers.removal import Removal

COLLECTOR: Final = "by-tag"
OWNER_TAG: Final = "knell.test/owner"
OURS: Final[Tags] = {OWNER_TAG: "ours"}
THEIRS: Final[Tags] = {OWNER_TAG: "theirs"}
KINDS: Final = {kind.name: kind for kind in IDENTIFIER_KINDS if kind.name in IDENTIFIER_ROWS}
LIMITS: Final = AwsLimits(KINDS.values())
SHORT_LEASE: Final[dict[str, Any]] = {"lease": timedelta(seconds=1), "attempt_timeout": timedelta(milliseconds=900)}
"""With which the jobs of a worker that was killed are soon another's."""

SCOPE: Final = CallScope(source=SOURCE, namespace="tenant", region=REGION)


class TaggedClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag=COLLECTOR):
    owner: str = "ours"


class TagJudge:
    """Implements the ClaimJudge of the AWS provider."""

    claim_type = TaggedClaim

    def owns(self, claim: TaggedClaim, found: AwsResource) -> str | None:
        owner = found.tags.get(OWNER_TAG, "")
        return None if owner == claim.owner else f"{found.id} belongs to {owner or 'nobody'}, not to {claim.owner}"

    def require_wanted(self, _job: Job, _claim: TaggedClaim) -> None:
        """It always is."""

    def latest(self, _deletion: str, claim: TaggedClaim) -> TaggedClaim:
        return claim

    def older(self, _claim: TaggedClaim, _found: AwsResource) -> str:
        return ""

    def removes_too(self, claim: TaggedClaim, other: AwsResource) -> bool:
        return self.owns(claim, other) is None

    def removed_by(self, _claim: TaggedClaim, _other: AwsResource) -> str:
        return ""

    def kept(self, _claim: TaggedClaim, _other: AwsResource) -> Kept | None:
        return None

    def label(self, claim: TaggedClaim) -> str:
        return claim.owner

    def snapshot_tags(self, _claim: TaggedClaim) -> Mapping[str, str]:
        return {}


class IdentifiedRemovalFixture:
    """`aws` are the settings, which a test may replace before it starts a worker or makes an attempt."""

    def __init__(self, base: AwsRemovalFixture) -> None:
        self.engine, self.cloud, self.reach = base.engine, base.cloud, base.reach
        self.aws: AwsAccess = QUICK
        self.journal, self.asked = base.journal, base.asked
        self.kept_records: KeptRecords = NoKeptRecords()
        self._provider = ScriptedProvider(draws_on=lambda _lane: None)
        self._deletions, self._claims = list[str](), list[ClaimRegistry]()

    async def make(self, kind: str, tags: Tags = OURS, name: str = "") -> str:
        """Creates one and returns its id."""
        row = IDENTIFIER_ROWS[kind]
        return await row.create(self.cloud.builder, name or named(kind.removeprefix("aws.")), tags)

    async def exists(self, kind: str, id_: str) -> bool:
        return await IDENTIFIER_ROWS[kind].exists(self.cloud.builder, id_)

    def set(self, **settings: Any) -> None:
        self.aws = msgspec.structs.replace(self.aws, **settings)

    def claim(self, **changes: Any) -> TaggedClaim:
        return TaggedClaim(**{"scope": SCOPE, "account": self.cloud.account, **changes})

    # ---- with a worker

    def targets(self, kind: str, *ids: str, incarnation: str = "") -> list[Target]:
        claim = self.claim()
        lane, data = f"{claim.place}/{KINDS[kind].delete_operation}", msgspec.json.encode(claim).decode()
        return [Target(kind=kind, id=one, lane=lane, data=data, incarnation=incarnation) for one in ids]

    async def start(self, **worker: Any) -> RunningWorker:
        """`worker` are settings of that section."""
        claims = self._registry(*self._deletions)
        self._claims.append(claims)
        others = [self._removal(name, claims) for name in KINDS]
        return await self.engine.start(self._provider, others=others, **worker)

    async def crash_after(self, running: RunningWorker, action: str) -> None:
        """Ends the worker as soon as AWS has got this request, and starts another one."""

        async def asked() -> bool:
            return bool(await self.asked(action))

        await self.engine.until(f"{action} was sent", asked)
        await running.crash()
        self.engine.running.remove(running)
        await self.start(**SHORT_LEASE)

    async def go(self, *targets: Target) -> Event:
        """Deletes an object that owns these; returns the event."""
        one = event(f"object-{len(self._deletions) + 1}")
        self._provider.plans[one.uid] = Plan(list(targets))
        self._deletions.append(one.deletion)
        for claims in self._claims:
            claims.consented(COLLECTOR, one.deletion, SCOPE, self.cloud.account)
        await self.engine.publish(one)
        return one

    async def remove(self, *targets: Target) -> Event:
        """Deletes an object and waits until it is done."""
        await self.start()
        one = await self.go(*targets)
        await self.engine.until_done(one)
        return one

    async def job(self, one: Event, target: str) -> dict[str, str]:
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

    # ---- single attempts

    async def attempt(
        self, kind: str, *ids: str, operation: str = "", claim: TaggedClaim | None = None,
        clear: Exception | None = None, **record: Any,
    ) -> dict[str, Verdict | Exception]:  # fmt: skip
        """One attempt; verdicts by target."""
        batch = self.batch(kind, *ids, operation=operation, claim=claim, clear=clear, **record)
        return await self.attempt_batch(batch)

    async def attempt_batch(self, batch: RecordingBatch) -> dict[str, Verdict | Exception]:
        removal = self._removal(batch.jobs[0].kind, self._registry(*(job.deletion for job in batch.jobs)))
        return {job.target: verdict async for job, verdict in removal.attempt(batch)}

    def batch(
        self, kind: str, *ids: str, operation: str = "", claim: TaggedClaim | None = None,
        clear: Exception | None = None, plan: int = 1, **record: Any,
    ) -> RecordingBatch:  # fmt: skip
        claim = claim or self.claim()
        lane = f"{claim.place}/{operation or KINDS[kind].delete_operation}"
        data = msgspec.json.encode(claim).decode()
        records = [
            JobRecord(**{"v": VERSION, "stage": 0, "lane": lane, "kind": kind, "target": one, "data": data, **record})
            for one in ids
        ]
        jobs: Sequence[Job] = [Job(f"deletion#{plan}.{number}", 7, one) for number, one in enumerate(records)]
        return RecordingBatch(lane, jobs, LIMITS.of_lane(lane) or (), clear=clear)

    def _registry(self, *consented: str) -> ClaimRegistry:
        claims = ClaimRegistry(lambda source: COLLECTOR if source == SOURCE else "")
        claims.add(COLLECTOR, TagJudge())
        for deletion in consented:
            claims.consented(COLLECTOR, deletion, SCOPE, self.cloud.account)
        return claims

    def _removal(self, kind: str, claims: ClaimRegistry) -> Removal[Any]:
        context = RemovalContext(self.reach, self.aws, claims, self.reach.limits, ConsentRechecks())
        return Removal(AwsKindCalls(KINDS[kind], context), self.kept_records)


@pytest.fixture
async def identified(
    embedded_server: TestServer, cloud: AwsTestAccount, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[IdentifiedRemovalFixture]:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await engine.arrive()
    try:
        async with aws_removal_on(engine, cloud, monkeypatch) as made:
            made.reach.limits.add(KINDS.values())
            yield IdentifiedRemovalFixture(made)
            for running in engine.running:
                await running.stop()
    finally:
        await cloud.aws.set_rate(1)
        await engine.close()
