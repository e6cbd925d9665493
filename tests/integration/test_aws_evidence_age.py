"""Reads on AWS count for five seconds: consent that arrives later sends no call, whichever it was for. Slow reads for a
batch are repeated, at last for each job alone, so that they block nothing."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import Blocked, Job, Pending, Refused
from service.settings import RetrySettings
from standins.aws.tags import by_cloud_provider
from tests.integration.aws_removal import AwsRecordingBatch, AwsRemovalFixture, removing
from workers.collectors.capa.claim import CapaClaim
from workers.handlers import evidence_age
from workers.providers.aws.client.clients import IDENTITY_TTL
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.model import CallScope
from workers.runtime.retry_policy import outcome_of

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
FRESH = evidence_age.FRESH
VOLUME, GROUP, TARGET_GROUP, BALANCER = "aws.volume", "aws.security-group", "aws.target-group", "aws.balancer"
READS = ("Describe", "Get")


class SteppedClock:
    """Stands still until a test moves it; `later` are moves that happen by themselves, one at each reading."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.later: Iterator[float] = iter(())

    def __call__(self) -> float:
        self.now += next(self.later, 0.0)
        return self.now


@pytest.fixture
def clock(removing: AwsRemovalFixture, monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    made = SteppedClock()
    monkeypatch.setattr(evidence_age, "FRESH", FRESH)
    monkeypatch.setattr(evidence_age, "now", made)
    return made


class SlowConsentBatch(AwsRecordingBatch):
    """Consent takes that many seconds, and something may happen meanwhile."""

    clock: SteppedClock
    takes = FRESH.total_seconds() + 1
    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def clear(self, *jobs: Job) -> None:
        await super().clear(*jobs)
        self.clock.now += self.takes
        if self.meanwhile is not None:
            await self.meanwhile()


def slow(batch: AwsRecordingBatch, clock: SteppedClock, takes: float = SlowConsentBatch.takes) -> SlowConsentBatch:
    made = SlowConsentBatch(batch.lane, batch.jobs)
    made.clock, made.takes = clock, takes
    return made


@dataclass
class FreshnessCase:
    """A call under test: a resource of a kind, in the lane of an operation; deletions come last."""

    kind: str
    operation: str
    target: str
    owner: CapaClaim


async def _volume(removing: AwsRemovalFixture) -> list[FreshnessCase]:
    volume = await removing.cloud.builder.volume(OURS)
    saved = removing.owner(snapshot=True)
    return [
        FreshnessCase(VOLUME, "ec2.CreateSnapshot", volume, saved),
        FreshnessCase(VOLUME, "ec2.DeleteVolume", volume, removing.owner()),
    ]


async def _group(removing: AwsRemovalFixture) -> list[FreshnessCase]:
    build = removing.cloud.builder
    vpc = await build.vpc()
    free, one, two = [await build.group(vpc, OURS) for _ in range(3)]
    await build.rule(one, two)
    await build.rule(one, two, egress=True)
    return [
        FreshnessCase(GROUP, "ec2.DeleteSecurityGroup", free, removing.owner(vpc)),
        FreshnessCase(GROUP, "ec2.RevokeSecurityGroupIngress", two, removing.owner(vpc)),
        FreshnessCase(GROUP, "ec2.RevokeSecurityGroupEgress", two, removing.owner(vpc)),
    ]


async def _balancing(removing: AwsRemovalFixture) -> list[FreshnessCase]:
    build = removing.cloud.builder
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    used, free = await build.target_group(vpc, SERVED, behind=balancer), await build.target_group(vpc, SERVED)
    classic = await build.classic(vpc, SERVED)
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    owner = removing.owner(vpc)
    return [
        FreshnessCase(BALANCER, "elbv2.ModifyLoadBalancerAttributes", balancer, owner),
        FreshnessCase(TARGET_GROUP, "elbv2.DeleteTargetGroup", free, owner),
        FreshnessCase(TARGET_GROUP, "elbv2.DeleteListener", used, owner),
        FreshnessCase(BALANCER, "elbv2.DeleteLoadBalancer", balancer, owner),
        FreshnessCase("aws.classic-balancer", "elb.DeleteLoadBalancer", classic, owner),
    ]


MADE: Sequence[Callable[[AwsRemovalFixture], Awaitable[list[FreshnessCase]]]] = (_volume, _group, _balancing)


@pytest.mark.invariant(2)
@pytest.mark.parametrize("made", MADE)
async def test_consent_that_took_longer_than_evidence_counts_sends_nothing(
    removing: AwsRemovalFixture,
    clock: SteppedClock,
    made: Callable[[AwsRemovalFixture], Awaitable[list[FreshnessCase]]],
) -> None:
    for case in await made(removing):
        batch = removing.batch(case.owner, case.kind, case.target, operation=case.operation)
        before = len(await removing.asked())
        (found,) = (await removing.attempt(slow(batch, clock))).values()
        assert isinstance(found, Blocked), (case, found)
        assert "grown old" in found.by
        asked = (await removing.asked())[before:]
        assert asked
        assert [one for one in asked if not one.partition(".")[2].startswith(READS)] == []
        # With consent in time, the same attempt is the call.
        await removing.attempt(removing.batch(case.owner, case.kind, case.target, operation=case.operation))
        assert (await removing.asked())[-1] == case.operation


async def test_these_are_all_the_calls_that_change_anything(removing: AwsRemovalFixture) -> None:
    """Deletions of all kinds are made in one place; every other call is a step."""
    tested = {case.operation for made in MADE for case in await made(removing)}
    one_place = {kind.delete_operation for kind in KINDS}
    steps = {name for kind in KINDS for name in kind.steps if not name.partition(".")[2].startswith(READS)}
    assert steps <= tested
    assert tested - steps <= one_place


async def test_consent_that_is_always_late_costs_no_attempt_and_is_requested_less_and_less(
    removing: AwsRemovalFixture, clock: SteppedClock
) -> None:
    volume = await removing.cloud.builder.volume(OURS)
    batch = removing.batch(removing.owner(), VOLUME, volume)
    (job,), delays = batch.jobs, list[int]()
    for _ in range(12):
        (found,) = (await removing.attempt(slow(AwsRecordingBatch(batch.lane, [job]), clock))).values()
        outcome = outcome_of(job, found, RetrySettings(), 0, lambda: 1.0)
        assert (outcome.kind, outcome.record.attempts, outcome.record.held) == ("blocked", 0, 0)
        delays.append(outcome.delay)
        job = Job(job.id, job.fence, outcome.record)
    assert delays[:3] == [5_000, 10_000, 20_000]
    assert delays[-1] == 300_000
    assert await removing.asked("ec2.DeleteVolume") == []


async def test_a_batch_that_was_delayed_after_its_reads_is_read_again_once(
    removing: AwsRemovalFixture, clock: SteppedClock
) -> None:
    asked = await _delayed(removing, clock, (0.0, FRESH.total_seconds() + 1))
    assert asked.count("ec2.DescribeVolumes") == 2


async def test_a_batch_whose_reads_always_take_long_is_read_job_by_job_and_goes(
    removing: AwsRemovalFixture, clock: SteppedClock
) -> None:
    late = FRESH.total_seconds() + 1
    # The reads of the batch and the check of their age, by each of the three jobs; and the same once more.
    asked = await _delayed(removing, clock, (0.0, late, 0.0, 0.0, 0.0, late))
    assert asked.count("ec2.DescribeVolumes") == 2 + 3


async def _delayed(removing: AwsRemovalFixture, clock: SteppedClock, later: Sequence[float]) -> list[str]:
    """The calls for three volumes, which are all deleted."""
    volumes = [await removing.cloud.builder.volume(OURS) for _ in range(3)]
    clock.later = iter(later)
    found = await removing.attempt(removing.batch(removing.owner(), VOLUME, *volumes))
    assert {type(one) for one in found.values()} == {Pending}
    asked = await removing.asked()
    assert asked.count("ec2.DeleteVolume") == len(volumes)
    return asked


@pytest.mark.invariant(2)
@pytest.mark.parametrize("reserved", [True, False])
async def test_no_identity_is_read_between_consent_and_the_call(
    removing: AwsRemovalFixture, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, reserved: bool
) -> None:
    """It is of the same management cluster as consent, and may be read as slowly."""
    volume = await removing.cloud.builder.volume(OURS)
    done, seconds, authenticate = list[str](), clock.now, removing.reach.authenticate
    # The identity is due between the two consents: almost before the second one, and certainly after it.
    takes = iter((IDENTITY_TTL - FRESH + timedelta(seconds=1), FRESH - timedelta(milliseconds=1)))

    async def logged(scope: CallScope, account: str) -> Any:
        done.append("identity")
        return await authenticate(scope, account)

    class LoggedBatch(AwsRecordingBatch):
        async def clear(self, *jobs: Job) -> None:
            nonlocal seconds
            await super().clear(*jobs)
            done.append("consent")
            seconds += next(takes).total_seconds()

    monkeypatch.setattr(removing.reach, "authenticate", logged)
    monkeypatch.setattr(removing.reach, "clock", lambda: seconds)
    # A job that was blocked asks for consent before anything else, too.
    made = removing.batch(removing.owner(), VOLUME, volume, verdict="blocked", waits=4)
    batch = LoggedBatch(made.lane, made.jobs)
    if not reserved:
        batch.meter.close()
    found = (await removing.attempt(batch))[volume]
    assert isinstance(found, Pending), found
    assert done[-3:] == ["consent", "identity", "consent"]
    assert (await removing.asked())[-1] == "ec2.DeleteVolume"


@pytest.mark.invariant(2)
async def test_what_became_another_clusters_while_it_waited_is_seen_when_it_is_read_again(
    removing: AwsRemovalFixture, clock: SteppedClock
) -> None:
    build = removing.cloud.builder
    volume = await build.volume(OURS)
    # A job that was blocked rechecks whether it is still wanted before anything else.
    made = removing.batch(removing.owner(), VOLUME, volume, verdict="blocked", waits=4)
    batch = slow(made, clock, FRESH.total_seconds() * 0.6)

    async def retagged() -> None:
        await build.ec2.delete_tags(Resources=[volume], Tags=[{"Key": key} for key in OURS])

    batch.meanwhile = retagged
    found = (await removing.attempt(batch))[volume]
    assert isinstance(found, Refused)
    assert await removing.asked("ec2.DeleteVolume") == []


async def test_a_long_search_for_a_listener_is_followed_by_new_reads_of_its_owner(
    removing: AwsRemovalFixture, clock: SteppedClock
) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    used = await build.target_group(vpc, SERVED, behind=balancer)
    batch = removing.batch(removing.owner(vpc), TARGET_GROUP, used, operation="elbv2.DeleteListener")
    # The reads of the batch, the check of their age, and the search.
    clock.later = iter((0.0, 0.0, FRESH.total_seconds() + 1))
    found = (await removing.attempt(batch))[used]
    assert isinstance(found, Pending)
    asked = await removing.asked()
    assert asked.count("elbv2.DescribeTargetGroups") == 2
    assert asked.count("elbv2.DescribeLoadBalancers") == 2
    assert asked[-1] == "elbv2.DeleteListener"
