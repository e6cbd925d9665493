"""Evidence on AWS counts for five seconds: consent that arrives later sends nothing, whichever call it was asked for.
Reads for a batch that took long are made again for each job, so that slow reads stop nothing."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from service.contract import Blocked, Job, Pending, Refused
from service.settings import RetrySettings
from standins.aws.tags import by_cloud_provider
from tests.integration.aws_removing import Hand, Removing, removing
from workers.handlers import freshness
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import Owner
from workers.runtime.outcomes import judge

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
FRESH = freshness.FRESH
VOLUME, GROUP, TARGET_GROUP, BALANCER = "aws.volume", "aws.security-group", "aws.target-group", "aws.balancer"
READS = ("Describe", "Get")


class Clock:
    """Stands until a test moves it; `later` are moves that happen by themselves, one at each reading."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.later: Iterator[float] = iter(())

    def __call__(self) -> float:
        self.now += next(self.later, 0.0)
        return self.now


@pytest.fixture
def clock(removing: Removing, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(freshness, "FRESH", FRESH)
    monkeypatch.setattr(freshness, "now", made)
    return made


class Slow(Hand):
    """Consent takes so many seconds, and meanwhile something may happen."""

    clock: Clock
    takes = FRESH.total_seconds() + 1
    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def clear(self, *jobs: Job) -> None:
        await super().clear(*jobs)
        self.clock.now += self.takes
        if self.meanwhile is not None:
            await self.meanwhile()


def slow(hand: Hand, clock: Clock, takes: float = Slow.takes) -> Slow:
    made = Slow(hand.lane, hand.jobs)
    made.clock, made.takes = clock, takes
    return made


@dataclass
class Case:
    """What a call is made for: a resource of a kind, in the lane of an operation; those that delete come last."""

    kind: str
    operation: str
    target: str
    owner: Owner


async def _volume(removing: Removing) -> list[Case]:
    volume = await removing.cloud.world.volume(OURS)
    saved = removing.owner(snapshot=True)
    return [
        Case(VOLUME, "ec2.CreateSnapshot", volume, saved),
        Case(VOLUME, "ec2.DeleteVolume", volume, removing.owner()),
    ]


async def _group(removing: Removing) -> list[Case]:
    build = removing.cloud.world
    vpc = await build.vpc()
    free, one, two = [await build.group(vpc, OURS) for _ in range(3)]
    await build.rule(one, two)
    await build.rule(one, two, egress=True)
    return [
        Case(GROUP, "ec2.DeleteSecurityGroup", free, removing.owner(vpc)),
        Case(GROUP, "ec2.RevokeSecurityGroupIngress", two, removing.owner(vpc)),
        Case(GROUP, "ec2.RevokeSecurityGroupEgress", two, removing.owner(vpc)),
    ]


async def _balancing(removing: Removing) -> list[Case]:
    build = removing.cloud.world
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    used, free = await build.target_group(vpc, SERVED, behind=balancer), await build.target_group(vpc, SERVED)
    classic = await build.classic(vpc, SERVED)
    removing.aws = msgspec.structs.replace(removing.aws, lift_deletion_protection=True)
    owner = removing.owner(vpc)
    return [
        Case(BALANCER, "elbv2.ModifyLoadBalancerAttributes", balancer, owner),
        Case(TARGET_GROUP, "elbv2.DeleteTargetGroup", free, owner),
        Case(TARGET_GROUP, "elbv2.DeleteListener", used, owner),
        Case(BALANCER, "elbv2.DeleteLoadBalancer", balancer, owner),
        Case("aws.classic-balancer", "elb.DeleteLoadBalancer", classic, owner),
    ]


MADE: Sequence[Callable[[Removing], Awaitable[list[Case]]]] = (_volume, _group, _balancing)


@pytest.mark.invariant(2)
@pytest.mark.parametrize("made", MADE)
async def test_consent_that_took_longer_than_evidence_counts_sends_nothing(
    removing: Removing, clock: Clock, made: Callable[[Removing], Awaitable[list[Case]]]
) -> None:
    for case in await made(removing):
        hand = removing.hand(case.owner, case.kind, case.target, operation=case.operation)
        before = len(await removing.asked())
        (found,) = (await removing.attempt(slow(hand, clock))).values()
        assert isinstance(found, Blocked), (case, found)
        assert "grown old" in found.by
        asked = (await removing.asked())[before:]
        assert asked
        assert [one for one in asked if not one.partition(".")[2].startswith(READS)] == []
        # With consent in time, the same attempt is the call.
        await removing.attempt(removing.hand(case.owner, case.kind, case.target, operation=case.operation))
        assert (await removing.asked())[-1] == case.operation


async def test_these_are_all_the_calls_that_change_anything(removing: Removing) -> None:
    """Deletions of all kinds are made in one place; every other call is a step of its own."""
    tested = {case.operation for made in MADE for case in await made(removing)}
    one_place = {kind.operation for kind in KINDS}
    steps = {name for kind in KINDS for name in kind.steps if not name.partition(".")[2].startswith(READS)}
    assert steps <= tested
    assert tested - steps <= one_place


async def test_consent_that_is_always_late_costs_no_attempt_and_is_asked_for_less_and_less(
    removing: Removing, clock: Clock
) -> None:
    volume = await removing.cloud.world.volume(OURS)
    hand = removing.hand(removing.owner(), VOLUME, volume)
    (job,), delays = hand.jobs, list[int]()
    for _ in range(12):
        (found,) = (await removing.attempt(slow(Hand(hand.lane, [job]), clock))).values()
        outcome = judge(job, found, RetrySettings(), 0, lambda: 1.0)
        assert (outcome.kind, outcome.record.attempts, outcome.record.held) == ("blocked", 0, 0)
        delays.append(outcome.delay)
        job = Job(job.id, job.fence, outcome.record)
    assert delays[:3] == [5_000, 10_000, 20_000]
    assert delays[-1] == 300_000
    assert await removing.asked("ec2.DeleteVolume") == []


async def test_a_batch_whose_reads_took_long_is_read_again_job_by_job_and_goes(
    removing: Removing, clock: Clock
) -> None:
    volumes = [await removing.cloud.world.volume(OURS) for _ in range(3)]
    clock.later = iter((0.0, FRESH.total_seconds() + 1))
    found = await removing.attempt(removing.hand(removing.owner(), VOLUME, *volumes))
    assert {type(one) for one in found.values()} == {Pending}
    asked = await removing.asked()
    assert asked.count("ec2.DescribeVolumes") == 1 + len(volumes)
    assert asked.count("ec2.DeleteVolume") == len(volumes)


@pytest.mark.invariant(2)
async def test_what_became_another_clusters_while_it_waited_is_seen_when_it_is_read_again(
    removing: Removing, clock: Clock
) -> None:
    build = removing.cloud.world
    volume = await build.volume(OURS)
    # A job that something stood in the way of asks whether it is still wanted before anything else.
    made = removing.hand(removing.owner(), VOLUME, volume, verdict="blocked", waits=4)
    hand = slow(made, clock, FRESH.total_seconds() * 0.6)

    async def retagged() -> None:
        await build.ec2.delete_tags(Resources=[volume], Tags=[{"Key": key} for key in OURS])

    hand.meanwhile = retagged
    found = (await removing.attempt(hand))[volume]
    assert isinstance(found, Refused)
    assert await removing.asked("ec2.DeleteVolume") == []


async def test_a_long_search_for_a_listener_is_followed_by_fresh_reads_of_whose_it_is(
    removing: Removing, clock: Clock
) -> None:
    build = removing.cloud.world
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED)
    used = await build.target_group(vpc, SERVED, behind=balancer)
    hand = removing.hand(removing.owner(vpc), TARGET_GROUP, used, operation="elbv2.DeleteListener")
    # The reads of the batch, the look whether they have aged, and the search.
    clock.later = iter((0.0, 0.0, FRESH.total_seconds() + 1))
    found = (await removing.attempt(hand))[used]
    assert isinstance(found, Pending)
    asked = await removing.asked()
    assert asked.count("elbv2.DescribeTargetGroups") == 2
    assert asked.count("elbv2.DescribeLoadBalancers") == 2
    assert asked[-1] == "elbv2.DeleteListener"
