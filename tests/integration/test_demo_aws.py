"""What the demo says of its resources on AWS is what AWS's own lists and journal say: what is left, what was touched,
what was deleted twice, and what was changed while it was protected."""

import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from standins.aws import LocalAws, LocalAwsFailed
from standins.aws.builder import credentials, session
from standins.demo.ack_resources import AckResources
from standins.demo.aws_account import ACCOUNT, BALANCERS, GROUPS, REGION, AwsAccount
from standins.demo.fleet import Fleet, make_fleet
from tests.engine.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture
async def aws() -> AsyncIterator[LocalAws]:
    async with LocalAws() as running:
        yield running


@pytest.fixture
def fleet() -> Fleet:
    return make_fleet(4, 4)


@pytest.fixture
async def account(aws: LocalAws, fleet: Fleet) -> AsyncIterator[AwsAccount]:
    made = AwsAccount(aws, fleet)
    await made.open()
    for cluster in fleet.clusters:
        await made.add_cluster(cluster)
    await made.finish_creation()
    yield made
    await made.aclose()


@pytest.fixture
async def elbv2(aws: LocalAws) -> AsyncIterator[Any]:
    async with session().create_client(
        "elbv2", region_name=REGION, endpoint_url=aws.address, **credentials(ACCOUNT)
    ) as client:
        yield client


def network_balancer(account: AwsAccount, cluster: str) -> str:
    (found,) = [one for one in account.owned[cluster][BALANCERS] if "/net/" in one]
    return found


async def test_what_is_left_and_what_was_touched_on_aws_is_reported_from_aws(
    aws: LocalAws, account: AwsAccount, elbv2: Any
) -> None:
    owned = network_balancer(account, "shop-01")
    listed = (await elbv2.describe_load_balancers())["LoadBalancers"]
    every = {one for kinds in account.owned.values() for ids in kinds.values() for one in ids}
    (foreign,) = {one["LoadBalancerArn"] for one in listed} - every
    await elbv2.delete_load_balancer(LoadBalancerArn=owned)
    await account.refresh()
    assert account.progress() == {
        "load balancers": (1, 9),
        "their interfaces": (0, 18),
        "target groups": (0, 9),
        "security groups": (0, 12),
    }
    assert not account.finished
    assert account.summary(time.time()).touched == []
    await elbv2.delete_load_balancer(LoadBalancerArn=foreign)
    await aws.advance(60)
    await account.refresh()
    assert account.progress()["their interfaces"] == (2, 18)
    found = account.summary(time.time())
    assert (found.resources, found.removed, found.calls, found.drained) == (30, 1, 3, 2)
    assert (found.kept, found.missing, found.touched) == (26, [foreign], [foreign])
    assert len(found.left) == 29
    assert owned not in found.left
    assert found.early == found.twice == []


async def test_a_retained_resource_may_be_tagged_and_not_deleted(account: AwsAccount, fleet: Fleet, elbv2: Any) -> None:
    retained, live = (network_balancer(account, name) for name in (fleet.retained.name, "live"))
    tags = [{"Key": "knell.dev/retained", "Value": "any"}]
    await elbv2.add_tags(ResourceArns=[retained], Tags=tags)
    await account.refresh()
    found = account.summary(time.time())
    assert (found.tagged, found.touched) == (1, [])
    await elbv2.add_tags(ResourceArns=[live], Tags=tags)
    await elbv2.delete_load_balancer(LoadBalancerArn=retained)
    await account.refresh()
    found = account.summary(time.time())
    assert found.touched == sorted((retained, live))
    assert found.missing == [retained]
    assert account.existing_of(fleet.retained) == (9, 10)


async def test_what_was_changed_before_the_protection_was_removed_is_seen(
    account: AwsAccount, fleet: Fleet, elbv2: Any
) -> None:
    protected = network_balancer(account, fleet.protected.name)
    before = time.time()
    await elbv2.delete_load_balancer(LoadBalancerArn=protected)
    await account.refresh()
    assert account.summary(before).early == []
    assert account.summary(time.time()).early == [protected]


async def test_only_a_second_delete_that_succeeded_counts_as_twice(account: AwsAccount, aws: LocalAws) -> None:
    async with session().create_client(
        "ec2", region_name=REGION, endpoint_url=aws.address, **credentials(ACCOUNT)
    ) as ec2:
        # The fourth group of a cluster is used by nothing.
        for group in sorted(account.owned["shop-02"][GROUPS]):
            for _ in range(2):
                try:
                    await ec2.delete_security_group(GroupId=group)
                except ec2.exceptions.ClientError:
                    continue
    await account.refresh()
    found = account.summary(time.time())
    assert found.removed == 1
    assert found.twice == []
    deleted = [one for one in account.entries if one.action == "ec2.DeleteSecurityGroup" and not one.code]
    account.entries += deleted
    assert account.summary(time.time()).twice == [deleted[0].ids[0]]


async def test_a_stand_in_for_aws_that_dies_is_named(aws: LocalAws, account: AwsAccount) -> None:
    os.kill(aws.pid, signal.SIGKILL)
    with pytest.raises(LocalAwsFailed, match="the stand-in for AWS does not answer"):
        await account.refresh()


async def test_what_became_of_the_resources_of_acks_objects_is_reported_from_aws(
    aws: LocalAws, account: AwsAccount, fleet: Fleet
) -> None:
    await aws.behave(cloud_control_takes=0.1)
    ack = AckResources(fleet, "shop")
    made = {one.name: await ack.add(account.builder, one) for one in fleet.ack}
    await ack.refresh(account.builder)
    assert ack.exists(fleet.queue)
    place = {"region_name": REGION, "endpoint_url": aws.address, **credentials(ACCOUNT)}
    async with session().create_client("cloudcontrol", **place) as client:
        for name in ("orders", "returns"):
            await client.delete_resource(TypeName="AWS::SQS::Queue", Identifier=made[name].id)

    async def ended() -> bool:
        await ack.refresh(account.builder)
        return bool(ack.finished) and not ack.exists(fleet.live_queue)

    await until("both queues are gone", ended)
    await account.refresh()
    found = ack.summary(account.entries, recorded="a", audit="b")
    assert (found.left, found.missing, found.touched, found.twice) == ([], ["returns"], ["returns"], [])
    assert (found.by_cloud_control, found.recorded, found.audit) == (1, "a", "b")
    assert account.summary(time.time()).touched == []
