"""Fixture for removals through Cloud Control: as `aws_removal`, with the kind for any type, and a collector of the
tests that recognises its resources by one tag. Created resources are named by their targets' ids."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
import pytest
from aiobotocore.config import AioConfig

from service.contract import Event, Job, JobRecord, Pending, Plan, Target, Verdict
from service.contract.version import VERSION
from service.sources.aws import AwsAccess
from standins.aws.builder import credentials, session
from standins.aws.calls import SETUP
from standins.aws.tags import Tags
from tests.aws import AwsTestAccount
from tests.cloud_control_types import CLOUD_CONTROL_TYPES, NewByIdentifier
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.engine.scripted_provider import ScriptedProvider, event
from tests.integration.aws_removal import QUICK, REGION, SOURCE, AwsRemovalFixture, aws_removal_on
from tests.recording_batch import RecordingBatch
from tests.redis_servers import TestServer
from workers.handlers.kept_resources import NoKeptRecords
from workers.providers.aws.claims import ClaimRegistry, Kept
from workers.providers.aws.cloud_control_ids import cloud_control_id, split_cloud_control_id
from workers.providers.aws.kind_calls import AwsKindCalls, RemovalContext
from workers.providers.aws.kinds.cloud_control import CLOUD_CONTROL, DELETE
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClaim, AwsResource, CallScope
from workers.providers.aws.rechecks import ConsentRechecks
from workers.removal import Removal

COLLECTOR: Final = "by-identifier"
OWNER: Final = "knell.test/owner"
OURS: Final[Tags] = {OWNER: "ours"}
THEIRS: Final[Tags] = {OWNER: "theirs"}
LIMITS: Final = AwsLimits([CLOUD_CONTROL])
SCOPE: Final = CallScope(source=SOURCE, namespace="tenant", region=REGION)
QUEUE: Final = "AWS::SQS::Queue"


class ByIdentifierClaim(AwsClaim, frozen=True, kw_only=True, omit_defaults=True, tag=COLLECTOR):
    """A resource with the tag of `OURS`."""


class ByIdentifierJudge:
    """Implements the ClaimJudge of the AWS provider."""

    claim_type = ByIdentifierClaim

    def owns(self, _claim: ByIdentifierClaim, found: AwsResource) -> str | None:
        return None if found.tags.get(OWNER) == OURS[OWNER] else f"{found.id} is tagged {dict(found.tags)}"

    def require_wanted(self, _job: Job, _claim: ByIdentifierClaim) -> None:
        """It always is."""

    def latest(self, _deletion: str, claim: ByIdentifierClaim) -> ByIdentifierClaim:
        return claim

    def older(self, _claim: ByIdentifierClaim, _found: AwsResource) -> str:
        return ""

    def removes_too(self, _claim: ByIdentifierClaim, _other: AwsResource) -> bool:
        return False

    def removed_by(self, _claim: ByIdentifierClaim, _other: AwsResource) -> str:
        return ""

    def kept(self, _claim: ByIdentifierClaim, _other: AwsResource) -> Kept | None:
        return None

    def label(self, _claim: ByIdentifierClaim) -> str:
        return "ours"

    def snapshot_tags(self, _claim: ByIdentifierClaim) -> Mapping[str, str]:
        return {}


class CloudControlFixture:
    def __init__(self, base: AwsRemovalFixture, new: NewByIdentifier, client: Any) -> None:
        self.engine, self.cloud, self.aws = base.engine, base.cloud, base.cloud.aws
        self.reach, self.journal = base.reach, base.journal
        self.settings: AwsAccess = QUICK
        self.new, self.client = new, client
        self._provider = ScriptedProvider(draws_on=lambda _lane: None)
        self._deletions, self._claims = list[str](), list[ClaimRegistry]()

    # ---- resources

    async def create(self, type_: str = QUEUE, tags: Tags = OURS) -> str:
        """The id of a new resource."""
        return cloud_control_id(type_, await CLOUD_CONTROL_TYPES[type_](self.new._replace(tags=tags)))

    async def exists(self, id_: str) -> bool:
        named = split_cloud_control_id(id_)
        try:
            await self.client.get_resource(TypeName=named.type, Identifier=named.identifier)
        except self.client.exceptions.ResourceNotFoundException:
            return False
        return True

    async def requests(self) -> list[dict[str, Any]]:
        """All requests of the account, the latest first."""
        found: list[dict[str, Any]] = (await self.client.list_resource_requests())["ResourceRequestStatusSummaries"]
        return found

    async def every_request(self) -> AsyncIterator[dict[str, Any]]:
        async for page in self.client.get_paginator("list_resource_requests").paginate():
            for one in page["ResourceRequestStatusSummaries"]:
                yield one

    async def asked(self, *actions: str) -> list[str]:
        """Actions of the product in order, all or these, answered or not."""
        asked = [one.action for one in await self.journal(*actions)]
        # Resources are created with clients of the test.
        return [one for one in asked if one.startswith(("cloudcontrol.", "tagging.", "iam.List"))]

    async def deletes(self) -> int:
        return len(await self.asked(DELETE))

    # ---- with a worker

    @property
    def claim(self) -> ByIdentifierClaim:
        return ByIdentifierClaim(scope=SCOPE, account=self.cloud.account)

    def targets(self, *ids: str) -> list[Target]:
        lane, data = f"{self.claim.place}/{DELETE}", msgspec.json.encode(self.claim).decode()
        return [Target(kind=CLOUD_CONTROL.name, id=one, lane=lane, data=data) for one in ids]

    async def start(self, **worker: Any) -> RunningWorker:
        """With these settings of the section `worker`."""
        claims = self._registry(*self._deletions)
        self._claims.append(claims)
        return await self.engine.start(self._provider, others=[self._removal(claims)], **worker)

    async def go(self, *ids: str) -> Event:
        """Deletes an object that owns these; returns the event."""
        one = event(f"object-{len(self._deletions) + 1}")
        self._provider.plans[one.uid] = Plan(self.targets(*ids))
        self._deletions.append(one.deletion)
        for claims in self._claims:
            claims.consented(COLLECTOR, one.deletion, SCOPE, self.cloud.account)
        await self.engine.publish(one)
        return one

    async def remove(self, *ids: str) -> Event:
        """Deletes an object that owns these, and waits until it is done."""
        await self.start()
        one = await self.go(*ids)
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

    def batch(
        self, *ids: str, operation: str = DELETE, clear: Exception | None = None, **record: Any
    ) -> RecordingBatch:  # fmt: skip
        lane, data = f"{self.claim.place}/{operation}", msgspec.json.encode(self.claim).decode()
        given = {"v": VERSION, "stage": 0, "lane": lane, "kind": CLOUD_CONTROL.name, "data": data, **record}
        jobs = [Job(f"deletion#1.{number}", 7, JobRecord(target=one, **given)) for number, one in enumerate(ids)]
        return RecordingBatch(lane, jobs, LIMITS.of_lane(lane) or (), clear=clear)

    async def attempt(self, batch: RecordingBatch) -> dict[str, Verdict | Exception]:
        """One attempt; verdicts by target."""
        removal = self._removal(self._registry(*(job.deletion for job in batch.jobs)))
        return {job.target: verdict async for job, verdict in removal.attempt(batch)}

    async def one(self, id_: str, **given: Any) -> Verdict | Exception:
        """The verdict of one attempt at one job."""
        return (await self.attempt(self.batch(id_, **given)))[id_]

    async def next(self, id_: str, after: Verdict | Exception, **given: Any) -> Verdict | Exception:
        """The verdict of the attempt that follows after an attempt that moved the job."""
        assert isinstance(after, Pending), after
        operation = (after.lane or "").rpartition("/")[2]
        return await self.one(id_, operation=operation, **{"resume": after.resume, "verdict": "check", **given})

    def _registry(self, *consented: str) -> ClaimRegistry:
        claims = ClaimRegistry(lambda source: COLLECTOR if source == SOURCE else "")
        claims.add(COLLECTOR, ByIdentifierJudge())
        for deletion in consented:
            claims.consented(COLLECTOR, deletion, SCOPE, self.cloud.account)
        return claims

    def _removal(self, claims: ClaimRegistry) -> Removal[Any]:
        context = RemovalContext(self.reach, self.settings, claims, self.reach.limits, ConsentRechecks())
        return Removal(AwsKindCalls(CLOUD_CONTROL, context), NoKeptRecords())


def _own_client(cloud: AwsTestAccount) -> Any:
    """Its requests are not counted, and get no faults."""
    config = AioConfig(user_agent_extra=SETUP, retries={"total_max_attempts": 1})
    given = {"endpoint_url": cloud.aws.address, "config": config, **credentials(cloud.account)}
    return session().create_client("cloudcontrol", region_name=REGION, **given)


@pytest.fixture
async def control(
    embedded_server: TestServer, cloud: AwsTestAccount, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CloudControlFixture]:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await engine.arrive()
    await cloud.aws.behave(cloud_control_takes=0.2)
    try:
        async with aws_removal_on(engine, cloud, monkeypatch) as made, _own_client(cloud) as client:
            made.reach.limits.add([CLOUD_CONTROL])
            yield CloudControlFixture(made, NewByIdentifier(cloud, await cloud.builder.vpc(), OURS), client)
            for running in engine.running:
                if not running.task.done():
                    await running.stop()
    finally:
        await engine.close()
