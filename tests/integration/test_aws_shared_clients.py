"""Shared by all AWS calls: the budget of the account, and SDK clients, which are closed when unused. The budgets are
those of a real server, the limits those of the stand-in."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from service.contract import Draw, Limit
from service.engine.budgets import Budgets
from standins.aws import AwsFault, LocalAws
from tests.api_servers import TestApi
from tests.canned_server import still_open
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.waiting import until
from tests.integration.aws_identities import OWN, REGION, AwsIdentityFixture, aws_identity_fixture, own_credentials
from tests.redis_servers import TestServer
from workers.providers.aws.client import clients
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.sessions import IDLE_TIMEOUT, SdkSessions
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits
from workers.runtime.call_budget import CallBudget


@pytest.fixture
async def identities(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: "RecordedBudget"
) -> AsyncIterator[AwsIdentityFixture]:
    own_credentials(monkeypatch, tmp_path)
    async with aws_identity_fixture(api, local_aws, tmp_path, quota=quota) as made:
        yield made


# ---- shared budgets


class RecordedBudget:
    """The shared budgets, and what was drawn on them."""

    def __init__(self, quota: CallBudget) -> None:
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
async def quota(embedded_server: TestServer) -> AsyncIterator[RecordedBudget]:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await engine.arrive()
    try:
        yield RecordedBudget(CallBudget(Budgets(engine.installation.caller, engine.installation.keys), 0.1))
    finally:
        await engine.close()


async def test_paced_calls_keep_within_the_limits_of_the_account(
    identities: AwsIdentityFixture, quota: RecordedBudget
) -> None:
    client = await identities.reach.client(identities.whose(region="eu-north-1"), paced=True)
    (draw,) = AwsLimits(KINDS).of("eu-north-1", "tag.GetResources")
    begun = time.time()
    await asyncio.gather(*(client.call("resourcegroupstaggingapi", "get_resources") for _ in range(30)))
    asked = sorted(one.real for one in await identities.asked("tagging.GetResources"))
    assert len(asked) == 30
    # Calls granted one after the other may arrive together, but none before its token was available.
    rate = draw.limit.capacity / draw.limit.per.total_seconds()
    for count, at in enumerate(asked, 1):
        assert count <= draw.limit.capacity + rate * (at - begun) + 1
    assert asked[-1] - begun > 1.5
    assert quota.draws >= 30


async def test_a_paced_call_does_not_wait_for_long(identities: AwsIdentityFixture, quota: RecordedBudget) -> None:
    client = await identities.reach.client(identities.whose(), paced=True)
    long = timedelta(minutes=1)
    (draw,) = AwsLimits(KINDS).of(REGION, "ec2.DescribeVpcs")
    refused = time.monotonic()
    await quota.refused(f"aws/{OWN}", draw.limit, long)
    with pytest.raises(AwsError) as failed:
        await client.call("ec2", "describe_vpcs")
    passed = timedelta(seconds=time.monotonic() - refused)
    late = failed.value
    assert late.what == "throttled"
    assert late.after is not None
    assert long - passed - timedelta(seconds=1) < late.after < timedelta(seconds=65)
    assert not await identities.asked("ec2.DescribeVpcs")


async def test_a_call_of_a_list_in_the_background_waits_for_longer(
    identities: AwsIdentityFixture, quota: RecordedBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PACED_WAIT", timedelta(milliseconds=100))
    limits = AwsLimits(KINDS)
    # The pause outlasts every delay of a busy machine.
    (long,), (short,) = limits.of(REGION, "ec2.DescribeVpcs"), limits.of(REGION, "ec2.DescribeVolumes")
    await quota.refused(f"aws/{OWN}", long.limit, timedelta(minutes=10))
    with pytest.raises(AwsError, match="NoRoomInBudget"):
        await (await identities.reach.client(identities.whose(), paced=True)).call("ec2", "describe_vpcs")
    assert not await identities.asked("ec2.DescribeVpcs")
    await quota.refused(f"aws/{OWN}", short.limit, timedelta(seconds=1))
    patient = await identities.reach.client(identities.whose(), patient=True)
    assert "Volumes" in await patient.call("ec2", "describe_volumes")
    assert len(await identities.asked("ec2.DescribeVolumes")) == 1


async def test_a_list_in_the_background_does_not_begin_anew_for_a_page_that_was_refused(
    identities: AwsIdentityFixture, quota: RecordedBudget
) -> None:
    client = await identities.reach.client(identities.whose(), patient=True)
    await identities.aws.set_faults(AwsFault(what="throttle", action="elbv2.*", times=1))
    assert "TargetGroups" in await client.call("elbv2", "describe_target_groups")
    assert [one.status for one in await identities.asked("elbv2.DescribeTargetGroups")] == [400, 200]
    # The shared budget has been told.
    assert quota.refusals == [f"aws/{OWN} {REGION}/elbv2.reads"]


async def test_a_refusal_of_a_paced_call_reaches_the_shared_budget(
    identities: AwsIdentityFixture, quota: RecordedBudget
) -> None:
    client = await identities.reach.client(identities.whose(), paced=True)
    await identities.aws.set_faults(AwsFault(what="throttle", action="elbv2.*"))
    with pytest.raises(AwsError, match="Throttling"):
        await client.call("elbv2", "describe_load_balancers")
    assert quota.refusals == [f"aws/{OWN} {REGION}/elbv2.reads"]
    # AWS does not say which of the two it was.
    assert quota.doubted == [f"{REGION}/elbv2.all"]
    assert await quota.draw(f"aws/{OWN}", AwsLimits(KINDS).of(REGION, "elbv2.DescribeTags")) > timedelta(0)


# ---- clients


@pytest.mark.long
async def test_every_region_has_its_addresses() -> None:
    credentials = AwsCredentials("AKIA1", "s")
    async with SdkSessions() as sessions:
        found = {
            (region, service): await sessions.address(credentials, region, service)
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


async def test_clients_are_shared_and_closed_at_the_end(identities: AwsIdentityFixture) -> None:
    port = int(identities.aws.address.rpartition(":")[2])
    async with SdkSessions(identities.aws.address) as sessions:
        credentials = AwsCredentials(f"AKIA{OWN}", "s")
        calls = [sessions.call(credentials, REGION, "sts", "get_caller_identity", {}) for _ in range(20)]
        await asyncio.gather(*calls)
        assert sessions.open == 1
        assert still_open(port)
    assert sessions.open == 0
    assert not still_open(port)


async def test_unused_clients_are_closed(identities: AwsIdentityFixture) -> None:
    clock = identities.clock
    async with SdkSessions(identities.aws.address, max_clients=3, clock=clock) as sessions:

        async def call(number: int) -> None:
            credentials = AwsCredentials(f"AKIA{OWN}{number}", "s")
            await sessions.call(credentials, REGION, "sts", "get_caller_identity", {})
            clock.now += 1

        for number in range(5):
            await call(number)
        assert sessions.open == 3
        clock.now += IDLE_TIMEOUT.total_seconds()
        await call(9)
        assert sessions.open == 1
        # Users of these credentials get a new client.
        await call(1)
        assert sessions.open == 2


async def test_a_client_in_use_is_never_closed(identities: AwsIdentityFixture) -> None:
    await identities.aws.set_faults(AwsFault(what="slow", action="ec2.*", seconds=1.0))
    async with SdkSessions(identities.aws.address, max_clients=1, clock=identities.clock) as sessions:
        one, two = AwsCredentials(f"AKIA{OWN}", "s"), AwsCredentials(f"AKIA{OWN}", "other")
        slow = asyncio.ensure_future(sessions.call(one, REGION, "ec2", "describe_vpcs", {}))

        async def lent() -> bool:
            return sessions.open == 1

        await until("the first client is there", lent)
        await sessions.call(two, REGION, "sts", "get_caller_identity", {})
        assert "Vpcs" in await slow
