"""What calls to AWS share: the budget of the account, and clients, which are closed when nobody needs them.
The budgets are those of a real server, the limits those of the stand-in."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from service.contract import Draw, Limit
from service.local.aws import Fault, LocalAws
from service.stream.budgets import Budgets
from tests.canned_server import still_open
from tests.clusters import TestApi
from tests.engine.waiting import until
from tests.engine.world import World
from tests.integration.aws_access import OWN, REGION, Stage, own_credentials, staged
from tests.servers import TestServer
from workers.handlers.aws import reach
from workers.handlers.aws.access import Access
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.limits import limits_of
from workers.handlers.aws.sessions import IDLE, Sessions
from workers.runtime.quota import BudgetQuota


@pytest.fixture
async def stage(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: "Noted"
) -> AsyncIterator[Stage]:
    own_credentials(monkeypatch, tmp_path)
    async with staged(api, local_aws, tmp_path, quota=quota) as made:
        yield made


# ---- shared budgets


class Noted:
    """The shared budgets, and what was drawn on them."""

    def __init__(self, quota: BudgetQuota) -> None:
        self._quota = quota
        self.refusals: list[str] = []
        self.doubted: list[str] = []
        self.draws = 0

    async def draw(self, place: str, draws: Sequence[Draw]) -> timedelta:
        self.draws += 1
        return await self._quota.draw(place, draws)

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        self.refusals.append(f"{place} {limit.name}")
        self.doubted += [other.name for other in others]
        await self._quota.refused(place, limit, wait, others)


@pytest.fixture
async def quota(embedded_server: TestServer) -> AsyncIterator[Noted]:
    world = World(embedded_server.server, embedded_server.settings())
    await world.arrive()
    try:
        yield Noted(BudgetQuota(Budgets(world.installation.caller, world.installation.keys), 0.1))
    finally:
        await world.close()


async def test_paced_calls_keep_within_the_limits_of_the_account(stage: Stage, quota: Noted) -> None:
    calls = await stage.reach.calls(stage.whose(region="eu-north-1"), paced=True)
    (draw,) = limits_of("eu-north-1", "tag.GetResources")
    begun = time.time()
    await asyncio.gather(*(calls.call("resourcegroupstaggingapi", "get_resources") for _ in range(30)))
    asked = sorted(one.real for one in await stage.asked("tagging.GetResources"))
    assert len(asked) == 30
    # Calls that were granted one after the other may arrive together, but none arrives before its token was there.
    rate = draw.limit.capacity / draw.limit.per.total_seconds()
    for count, at in enumerate(asked, 1):
        assert count <= draw.limit.capacity + rate * (at - begun) + 1
    assert asked[-1] - begun > 1.5
    assert quota.draws >= 30


async def test_a_paced_call_does_not_wait_for_long(stage: Stage, quota: Noted) -> None:
    calls = await stage.reach.calls(stage.whose(), paced=True)
    long = timedelta(minutes=1)
    (draw,) = limits_of(REGION, "ec2.DescribeVpcs")
    await quota.refused(f"aws/{OWN}", draw.limit, long)
    with pytest.raises(AwsError) as failed:
        await calls.call("ec2", "describe_vpcs")
    late = failed.value
    assert late.what == "throttled"
    assert late.after is not None
    assert timedelta(seconds=50) < late.after < timedelta(seconds=65)
    assert not await stage.asked("ec2.DescribeVpcs")


async def test_a_call_of_a_list_in_the_background_waits_for_longer(
    stage: Stage, quota: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "PATIENCE", timedelta(milliseconds=100))
    (draw,) = limits_of(REGION, "ec2.DescribeVpcs")
    await quota.refused(f"aws/{OWN}", draw.limit, timedelta(seconds=1))
    with pytest.raises(AwsError, match="NoRoomInBudget"):
        await (await stage.reach.calls(stage.whose(), paced=True)).call("ec2", "describe_vpcs")
    assert "Vpcs" in await (await stage.reach.calls(stage.whose(), patient=True)).call("ec2", "describe_vpcs")
    assert len(await stage.asked("ec2.DescribeVpcs")) == 1


async def test_a_list_in_the_background_does_not_begin_anew_for_a_page_that_was_refused(
    stage: Stage, quota: Noted
) -> None:
    calls = await stage.reach.calls(stage.whose(), patient=True)
    await stage.aws.trouble(Fault(what="throttle", action="elbv2.*", times=1))
    assert "TargetGroups" in await calls.call("elbv2", "describe_target_groups")
    assert [one.status for one in await stage.asked("elbv2.DescribeTargetGroups")] == [400, 200]
    # The others have heard of it.
    assert quota.refusals == [f"aws/{OWN} {REGION}/elbv2.reads"]


async def test_a_refusal_of_a_paced_call_is_told_to_all_who_share_the_budget(stage: Stage, quota: Noted) -> None:
    calls = await stage.reach.calls(stage.whose(), paced=True)
    await stage.aws.trouble(Fault(what="throttle", action="elbv2.*"))
    with pytest.raises(AwsError, match="Throttling"):
        await calls.call("elbv2", "describe_load_balancers")
    assert quota.refusals == [f"aws/{OWN} {REGION}/elbv2.reads"]
    # AWS does not say which of the two it was.
    assert quota.doubted == [f"{REGION}/elbv2.all"]
    assert await quota.draw(f"aws/{OWN}", limits_of(REGION, "elbv2.DescribeTags")) > timedelta(0)


# ---- clients


@pytest.mark.long
async def test_every_region_has_its_addresses() -> None:
    access = Access("AKIA1", "s")
    async with Sessions() as sessions:
        found = {
            (region, service): await sessions.address(access, region, service)
            for region in ("eu-west-1", "cn-north-1", "us-gov-west-1")
            for service in ("sts", "ec2", "resourcegroupstaggingapi")
        }
    assert found == {
        ("eu-west-1", "sts"): "https://sts.eu-west-1.amazonaws.com",
        ("eu-west-1", "ec2"): "https://ec2.eu-west-1.amazonaws.com",
        ("eu-west-1", "resourcegroupstaggingapi"): "https://tagging.eu-west-1.amazonaws.com",
        ("cn-north-1", "sts"): "https://sts.cn-north-1.amazonaws.com.cn",
        ("cn-north-1", "ec2"): "https://ec2.cn-north-1.amazonaws.com.cn",
        ("cn-north-1", "resourcegroupstaggingapi"): "https://tagging.cn-north-1.amazonaws.com.cn",
        ("us-gov-west-1", "sts"): "https://sts.us-gov-west-1.amazonaws.com",
        ("us-gov-west-1", "ec2"): "https://ec2.us-gov-west-1.amazonaws.com",
        ("us-gov-west-1", "resourcegroupstaggingapi"): "https://tagging.us-gov-west-1.amazonaws.com",
    }


async def test_clients_are_shared_and_closed_at_the_end(stage: Stage) -> None:
    port = int(stage.aws.address.rpartition(":")[2])
    async with Sessions(stage.aws.address) as sessions:
        access = Access(f"AKIA{OWN}", "s")
        calls = [sessions.call(access, REGION, "sts", "get_caller_identity", {}) for _ in range(20)]
        await asyncio.gather(*calls)
        assert sessions.open == 1
        assert still_open(port)
    assert sessions.open == 0
    assert not still_open(port)


async def test_clients_that_nobody_uses_are_closed(stage: Stage) -> None:
    clock = stage.clock
    async with Sessions(stage.aws.address, most=3, clock=clock) as sessions:

        async def call(number: int) -> None:
            access = Access(f"AKIA{OWN}{number}", "s")
            await sessions.call(access, REGION, "sts", "get_caller_identity", {})
            clock.now += 1

        for number in range(5):
            await call(number)
        assert sessions.open == 3
        clock.now += IDLE.total_seconds()
        await call(9)
        assert sessions.open == 1
        # Those who still have the key get a new client.
        await call(1)
        assert sessions.open == 2


async def test_a_client_in_use_is_never_closed(stage: Stage) -> None:
    await stage.aws.trouble(Fault(what="slow", action="ec2.*", seconds=1.0))
    async with Sessions(stage.aws.address, most=1, clock=stage.clock) as sessions:
        one, two = Access(f"AKIA{OWN}", "s"), Access(f"AKIA{OWN}", "other")
        slow = asyncio.ensure_future(sessions.call(one, REGION, "ec2", "describe_vpcs", {}))

        async def lent() -> bool:
            return sessions.open == 1

        await until("the first client is there", lent)
        await sessions.call(two, REGION, "sts", "get_caller_identity", {})
        assert "Vpcs" in await slow
