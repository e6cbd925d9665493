"""Removal of every kind: a resource is deleted and proven absent, and a similar one of another owner stays. Kinds with
dependencies or several types have tests of their own."""

import pytest

from standins.aws.tags import by_balancer_controller, by_cloud_provider, by_cluster_api
from tests.aws_kinds import AWS_KINDS
from tests.integration.aws_removal import AwsRemovalFixture, removing
from workers.collectors.capa.kinds import CAPA_KINDS

__all__ = ["removing"]

OURS = by_cloud_provider("c1")
SERVED = by_cloud_provider("c1", "default/web")
THEIRS = by_cloud_provider("c2", "default/web")


@pytest.mark.parametrize("kind", CAPA_KINDS)
async def test_a_resource_of_any_kind_goes_by_one_call_and_one_of_another_cluster_stays(
    removing: AwsRemovalFixture, kind: str
) -> None:
    build, row = removing.cloud.builder, AWS_KINDS[kind]
    if row.takes:
        await removing.cloud.aws.behave(**{row.takes: 1.0})
    vpc = await build.vpc()
    ours, theirs = [await row.make(build, vpc, row.tags(name)) for name in ("c1", "c2")]
    before = set(await row.there(build))
    assert {ours, theirs} <= before
    await removing.remove(*removing.targets(removing.owner(vpc), kind, ours))
    assert set(await row.there(build)) == before - {ours}
    assert await removing.asked(row.delete_operation) == [row.delete_operation]


async def test_a_classic_balancer(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs, api_server = [await build.classic(vpc, tags) for tags in (SERVED, THEIRS, by_cluster_api("c1"))]
    # A classic load balancer without a group is given one.
    before = await build.standing()
    await removing.remove(*removing.targets(removing.owner(vpc), "aws.classic-balancer", ours))
    assert await build.standing() == before - {ours}
    assert {theirs, api_server} < before
    assert await removing.asked() == [
        "elb.DescribeLoadBalancers", "elb.DescribeTags", "elb.DeleteLoadBalancer", "elb.DescribeLoadBalancers",
    ]  # fmt: skip


@pytest.mark.parametrize("type_", ["app", "net", "gwy"])
async def test_a_balancer_of_any_type(removing: AwsRemovalFixture, type_: str) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs = [await build.balancer(vpc, tags, of=type_) for tags in (SERVED, THEIRS)]  # type: ignore[arg-type]
    assert f"/{type_}/" in ours
    await removing.remove(*removing.targets(removing.owner(vpc), "aws.balancer", ours))
    assert await build.standing() == {theirs}


async def test_a_target_group_after_the_balancer_whose_listener_used_it(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    balancer = await build.balancer(vpc, SERVED, of="net")
    ours = await build.target_group(vpc, SERVED, behind=balancer)
    theirs = await build.target_group(vpc, THEIRS)
    await removing.remove(
        *removing.targets(owner(vpc), "aws.target-group", ours),
        *removing.targets(owner(vpc), "aws.balancer", balancer),
    )
    assert await build.standing() == {theirs}
    deletes = await removing.asked("elbv2.DeleteLoadBalancer", "elbv2.DeleteTargetGroup", "elbv2.DeleteListener")
    assert deletes == ["elbv2.DeleteLoadBalancer", "elbv2.DeleteTargetGroup"]


async def test_a_security_group(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    ours, theirs, user_s, node_s = [await build.group(vpc, tags) for tags in (OURS, THEIRS, {}, by_cluster_api("c1"))]
    await removing.remove(*removing.targets(removing.owner(vpc), "aws.security-group", ours))
    assert await build.standing() == {theirs, user_s, node_s}


async def test_what_the_balancer_controller_made(removing: AwsRemovalFixture) -> None:
    build, owner = removing.cloud.builder, removing.owner
    vpc = await build.vpc()
    tags = by_balancer_controller("c1")
    group = await build.group(vpc, tags)
    balancer = await build.balancer(vpc, tags, groups=[group])
    target_group = await build.target_group(vpc, tags, behind=balancer)
    theirs = await build.group(vpc, by_balancer_controller("c2"))
    await removing.cloud.aws.behave(drain=1.0)
    await removing.remove(
        *removing.targets(owner(vpc, by="lbc"), "aws.balancer", balancer),
        *removing.targets(owner(vpc, by="lbc"), "aws.target-group", target_group),
        *removing.targets(owner(vpc, by="lbc"), "aws.security-group", group),
    )
    assert await build.standing() == {theirs}


async def test_a_network_interface_once_nothing_uses_it(removing: AwsRemovalFixture) -> None:
    build, ec2 = removing.cloud.builder, removing.cloud.builder.ec2
    vpc = await build.vpc()
    instance = await build.instance(vpc)
    ours, theirs, used = [await build.interface(vpc, (), tags) for tags in (OURS, THEIRS, OURS)]
    attached = await ec2.attach_network_interface(NetworkInterfaceId=used, InstanceId=instance, DeviceIndex=1)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), "aws.network-interface", ours, used))
    await removing.until(going, used, "blocked", f"attached to instance {instance}")
    await ec2.detach_network_interface(AttachmentId=attached["AttachmentId"])
    await removing.engine.until_done(going)
    left = (await ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [vpc.id]}]))[
        "NetworkInterfaces"
    ]
    left = [one["NetworkInterfaceId"] for one in left if not one.get("Attachment")]
    assert left == [theirs]


async def test_a_nat_gateway_and_then_its_address(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    await removing.cloud.aws.behave(nat_gateway_goes=1.0)
    vpc = await build.vpc()
    ours, theirs = [await build.elastic_ip(tags) for tags in (OURS, THEIRS)]
    gateway = await build.nat_gateway(vpc, ours, OURS)
    await removing.remove(
        *removing.targets(removing.owner(vpc), "aws.elastic-ip", ours),
        *removing.targets(removing.owner(vpc), "aws.nat-gateway", gateway),
    )
    shown = (await build.ec2.describe_nat_gateways(NatGatewayIds=[gateway]))["NatGateways"]
    assert [one["State"] for one in shown] == ["deleted"]
    assert list(await AWS_KINDS["aws.elastic-ip"].there(build)) == [theirs]
    deletes = await removing.asked("ec2.DeleteNatGateway", "ec2.ReleaseAddress")
    assert deletes == ["ec2.DeleteNatGateway", "ec2.ReleaseAddress"]


async def test_an_elastic_ip_that_something_is_reached_by_is_not_released(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    vpc = await build.vpc()
    address, instance = await build.elastic_ip(OURS), await build.instance(vpc)
    await build.ec2.associate_address(AllocationId=address, InstanceId=instance)
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(vpc), "aws.elastic-ip", address))
    await removing.until(going, address, "blocked", f"the address of instance {instance}")
    assert await removing.asked("ec2.ReleaseAddress") == []
    association = (await build.ec2.describe_addresses(AllocationIds=[address]))["Addresses"][0]["AssociationId"]
    await build.ec2.disassociate_address(AssociationId=association)
    await removing.engine.until_done(going)
    assert await AWS_KINDS["aws.elastic-ip"].there(build) == {}


async def test_a_volume_once_no_instance_uses_it(removing: AwsRemovalFixture) -> None:
    build = removing.cloud.builder
    instance = await build.instance(await build.vpc())
    ours, theirs, used = [
        await build.volume(tags, instance=by) for tags, by in ((OURS, ""), (THEIRS, ""), (OURS, instance))
    ]
    await removing.start()
    going = await removing.go(*removing.targets(removing.owner(), "aws.volume", ours, used))
    await removing.until(going, used, "blocked", f"attached to instance {instance}")
    await build.ec2.detach_volume(VolumeId=used, InstanceId=instance)
    await removing.engine.until_done(going)
    left = set(await AWS_KINDS["aws.volume"].there(build))
    assert theirs in left
    assert not left & {ours, used}
    assert await removing.asked("ec2.CreateSnapshot") == []
