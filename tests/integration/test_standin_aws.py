"""Deletions in the stand-in for AWS: it refuses, delays and forgets as AWS does, where moto alone would not."""

import pytest
from botocore.exceptions import ClientError

from standins.aws.tags import by_cloud_provider
from tests.aws import AwsTestAccount, refusal
from tests.aws_kinds import AWS_KINDS, AwsKindRow
from workers.providers.aws.kinds import kind_of_arn

pytestmark = pytest.mark.long

OURS = by_cloud_provider("c1")
ENDPOINT = AWS_KINDS["aws.vpc-endpoint"]


async def interfaces_in(cloud: AwsTestAccount, *groups: str) -> list[dict[str, object]]:
    answer = await cloud.builder.ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": list(groups)}])
    return list(answer["NetworkInterfaces"])


@pytest.mark.parametrize("row", AWS_KINDS.values(), ids=lambda row: row.name)
async def test_a_resource_of_any_kind_is_shown_and_tagged_until_it_is_deleted_and_a_missing_one_is_said_to_be(
    cloud: AwsTestAccount, row: AwsKindRow
) -> None:
    client, builder = await cloud.client(row.service), cloud.builder
    vpc, tags = await builder.vpc(), row.tags("c1")
    one, other = [await row.make(builder, vpc, tags) for _ in range(2)]
    assert [item[row.id_field] for item in await row.shown(client, one)] == [one]
    arn = row.arn_of(one, cloud.account)
    parsed = kind_of_arn(arn)
    assert parsed is not None
    assert (parsed[0].name, parsed[1]) == (row.name, one)
    tagging = await cloud.client("resourcegroupstaggingapi")
    filters = [{"Key": key, "Values": [value]} for key, value in tags.items()]
    listed = {
        item["ResourceARN"]: {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        for item in (await tagging.get_resources(TagFilters=filters))["ResourceTagMappingList"]
    }
    assert listed[arn] == tags
    await cloud.aws.set_rate(0)
    assert await row.remove(client, one) == ""
    if row.takes:
        assert [item["State"].lower() for item in await row.shown(client, one)] == ["deleting"]
        assert one in await row.there(builder)
    await cloud.aws.advance(6)
    there = await row.there(builder)
    assert one not in there
    assert other in there
    await assert_missing(cloud, row)


async def assert_missing(cloud: AwsTestAccount, row: AwsKindRow) -> None:
    """Deleting what is not there is refused with AWS's code, or succeeds where AWS does not mind."""
    client, missing = await cloud.client(row.service), row.missing(cloud.account)
    try:
        code = await row.remove(client, missing)
    except ClientError as error:
        code = error.response["Error"]["Code"]
    assert code == ("" if row.deletes_missing else row.not_found[0])


async def test_a_group_that_a_rule_of_another_group_names_is_not_deleted(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    named, other, third = [await builder.group(vpc, OURS) for _ in range(3)]
    ingress = await builder.rule(other, named)
    egress = await builder.rule(third, named, egress=True)
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=named)
    await ec2.revoke_security_group_ingress(GroupId=other, SecurityGroupRuleIds=[ingress])
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=named)
    await ec2.revoke_security_group_egress(GroupId=third, SecurityGroupRuleIds=[egress])
    await ec2.delete_security_group(GroupId=named)
    assert await builder.standing() == {other, third}


async def test_groups_that_name_each_other_can_not_be_deleted_in_any_order(cloud: AwsTestAccount) -> None:
    ec2 = await cloud.client("ec2")
    vpc = await cloud.builder.vpc()
    one, other = [await cloud.builder.group(vpc, OURS) for _ in range(2)]
    await cloud.builder.rule(one, other)
    await cloud.builder.rule(other, one)
    for group in (one, other):
        with refusal("DependencyViolation"):
            await ec2.delete_security_group(GroupId=group)


async def test_a_group_that_names_only_itself_is_deleted(cloud: AwsTestAccount) -> None:
    ec2 = await cloud.client("ec2")
    group = await cloud.builder.group(await cloud.builder.vpc(), OURS)
    await cloud.builder.rule(group, group)
    await ec2.delete_security_group(GroupId=group)
    with refusal("InvalidGroup.NotFound"):
        await ec2.delete_security_group(GroupId=group)


async def test_a_group_with_an_interface_in_it_is_not_deleted(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    group = await builder.group(vpc, OURS)
    interface = await builder.interface(vpc, [group])
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=group)
    await ec2.delete_network_interface(NetworkInterfaceId=interface)
    await ec2.delete_security_group(GroupId=group)


async def test_interfaces_that_are_not_shown_hold_a_group_until_they_have_drained(cloud: AwsTestAccount) -> None:
    vpc = await cloud.builder.vpc()
    group = await cloud.builder.group(vpc, by_cloud_provider("c1"))
    balancer = await cloud.builder.balancer(vpc, by_cloud_provider("c1", "default/web"), groups=[group])
    ec2, elbv2 = await cloud.client("ec2"), await cloud.client("elbv2")
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(drain=30, drains_unseen=True)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    assert await interfaces_in(cloud, group) == []
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=group)
    await cloud.aws.advance(31)
    await ec2.delete_security_group(GroupId=group)


async def test_a_balancers_interfaces_hold_its_group_until_they_have_drained(cloud: AwsTestAccount) -> None:
    elbv2, ec2, builder = await cloud.client("elbv2"), await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    group = await builder.group(vpc, OURS)
    balancer = await builder.balancer(vpc, OURS, groups=[group])
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=group)
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(drain=30)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    await cloud.aws.advance(29.9)
    draining = await interfaces_in(cloud, group)
    assert [one["SubnetId"] for one in draining] == list(vpc.subnets)
    assert {one["Description"] for one in draining} == {f"ELB {balancer.partition('loadbalancer/')[2]}"}
    assert {(one["RequesterManaged"], one["Status"]) for one in draining} == {(True, "in-use")}
    assert {one["Attachment"]["InstanceOwnerId"] for one in draining} == {"amazon-elb"}  # type: ignore[index]
    with refusal("InvalidParameterValue"):
        await ec2.delete_network_interface(NetworkInterfaceId=draining[0]["NetworkInterfaceId"])
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=group)
    await cloud.aws.advance(0.2)
    assert await interfaces_in(cloud, group) == []
    await ec2.delete_security_group(GroupId=group)
    drained = [one for one in await cloud.aws.journal() if one.what == "drained" and group in one.ids]
    assert sorted(one.ids[0] for one in drained) == sorted(str(one["NetworkInterfaceId"]) for one in draining)


async def test_a_classic_balancers_interfaces_drain_too_and_each_balancer_has_its_own_time(
    cloud: AwsTestAccount,
) -> None:
    elb, builder = await cloud.client("elb"), cloud.builder
    vpc = await builder.vpc()
    groups = [await builder.group(vpc, OURS) for _ in range(2)]
    names = [await builder.classic(vpc, OURS, groups=[group]) for group in groups]
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(drain=10, drains={names[1]: 20})
    for name in names:
        await elb.delete_load_balancer(LoadBalancerName=name)
    assert {one["Description"] for one in await interfaces_in(cloud, *groups)} == {f"ELB {name}" for name in names}
    await cloud.aws.advance(11)
    assert {one["Description"] for one in await interfaces_in(cloud, *groups)} == {f"ELB {names[1]}"}
    await cloud.aws.advance(10)
    assert await interfaces_in(cloud, *groups) == []


async def test_a_protected_balancer_is_not_deleted(cloud: AwsTestAccount) -> None:
    elbv2, builder = await cloud.client("elbv2"), cloud.builder
    balancer = await builder.balancer(await builder.vpc(), OURS)
    await builder.protect(balancer)
    with refusal("OperationNotPermitted"):
        await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    await builder.protect(balancer, protected=False)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    assert await builder.standing() == set()


async def test_a_target_group_is_in_use_until_its_listener_or_its_balancer_is_gone(cloud: AwsTestAccount) -> None:
    elbv2, builder = await cloud.client("elbv2"), cloud.builder
    vpc = await builder.vpc()
    balancer = await builder.balancer(vpc, OURS)
    first = await builder.target_group(vpc, OURS, behind=balancer, port=80)
    second = await builder.target_group(vpc, OURS, behind=balancer, port=81)
    for group in (first, second):
        with refusal("ResourceInUse"):
            await elbv2.delete_target_group(TargetGroupArn=group)
    listeners = await elbv2.describe_listeners(LoadBalancerArn=balancer)
    await elbv2.delete_listener(ListenerArn=listeners["Listeners"][0]["ListenerArn"])
    await elbv2.delete_target_group(TargetGroupArn=first)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    left = await elbv2.describe_target_groups(TargetGroupArns=[second])
    assert left["TargetGroups"][0]["LoadBalancerArns"] == []
    await elbv2.delete_target_group(TargetGroupArn=second)
    with refusal("TargetGroupNotFound"):
        await elbv2.describe_target_groups(TargetGroupArns=[second])


async def test_a_nat_gateway_keeps_its_address_while_it_goes_and_shows_when_it_is_gone(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    address = await builder.elastic_ip(OURS)
    gateway = await builder.nat_gateway(vpc, address, OURS)
    await cloud.aws.set_rate(0)

    async def state() -> str:
        found = await ec2.describe_nat_gateways(Filters=[{"Name": "tag:kubernetes.io/cluster/c1", "Values": ["owned"]}])
        return ",".join(one["State"] for one in found["NatGateways"])

    with refusal("InvalidIPAddress.InUse"):
        await ec2.release_address(AllocationId=address)
    await ec2.delete_nat_gateway(NatGatewayId=gateway)
    assert await state() == "deleting"
    with refusal("InvalidIPAddress.InUse"):
        await ec2.release_address(AllocationId=address)
    await cloud.aws.advance(6)
    assert await state() == "deleted"
    await ec2.release_address(AllocationId=address)
    with refusal("InvalidAllocationID.NotFound"):
        await ec2.release_address(AllocationId=address)
    await cloud.aws.advance(3700)
    assert await state() == ""
    with refusal("NatGatewayNotFound"):
        await ec2.delete_nat_gateway(NatGatewayId=gateway)


async def test_nat_gateways_of_others_do_not_show_under_a_tag_filter(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    await builder.nat_gateway(vpc, await builder.elastic_ip(), by_cloud_provider("other"))
    found = await ec2.describe_nat_gateways(Filters=[{"Name": "tag:kubernetes.io/cluster/c1", "Values": ["owned"]}])
    assert found["NatGateways"] == []


async def test_an_endpoint_that_is_not_there_is_named_while_the_others_go(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    endpoint = await builder.endpoint(vpc, [], OURS)
    await cloud.aws.set_rate(0)
    missing = ENDPOINT.missing()
    answer = await ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint, missing])
    assert [one["ResourceId"] for one in answer["Unsuccessful"]] == [missing]
    assert [one["State"] for one in await ENDPOINT.shown(ec2, endpoint)] == ["deleting"]
    await cloud.aws.advance(6)
    assert await ENDPOINT.shown(ec2, endpoint) == []


async def test_a_volume_in_use_stays_and_a_snapshot_takes_its_time(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    instance = await builder.instance(vpc)
    volume = await builder.volume(OURS, instance=instance)
    with refusal("VolumeInUse"):
        await ec2.delete_volume(VolumeId=volume)
    await cloud.aws.set_rate(0)
    made = await ec2.create_snapshot(VolumeId=volume)
    assert made["State"] == "pending"
    shown = await ec2.describe_snapshots(SnapshotIds=[made["SnapshotId"]])
    assert shown["Snapshots"][0]["State"] == "pending"
    await cloud.aws.advance(6)
    shown = await ec2.describe_snapshots(SnapshotIds=[made["SnapshotId"]])
    assert shown["Snapshots"][0]["State"] == "completed"


async def test_a_snapshot_can_fail_and_says_why(cloud: AwsTestAccount) -> None:
    ec2 = await cloud.client("ec2")
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(snapshots_fail="the key is disabled")
    made = await ec2.create_snapshot(VolumeId=await cloud.builder.volume(OURS))
    await cloud.aws.advance(6)
    [shown] = (await ec2.describe_snapshots(SnapshotIds=[made["SnapshotId"]]))["Snapshots"]
    assert (shown["State"], shown["StateMessage"]) == ("error", "the key is disabled")


async def test_a_classic_balancer_has_another_address_than_its_namesake_of_before(cloud: AwsTestAccount) -> None:
    elb, builder = await cloud.client("elb"), cloud.builder
    vpc = await builder.vpc()
    addresses = []
    for _ in range(2):
        name = await builder.classic(vpc, OURS, name="the-same")
        [shown] = (await elb.describe_load_balancers(LoadBalancerNames=[name]))["LoadBalancerDescriptions"]
        addresses.append(shown["DNSName"])
        await elb.delete_load_balancer(LoadBalancerName=name)
    assert addresses[0] != addresses[1]


async def test_an_eks_cluster_is_deleting_before_it_is_gone(cloud: AwsTestAccount) -> None:
    eks, builder = await cloud.client("eks"), cloud.builder
    await builder.eks_cluster("c1", await builder.vpc())
    await cloud.aws.set_rate(0)
    assert (await eks.describe_cluster(name="c1"))["cluster"]["status"] == "ACTIVE"
    await eks.delete_cluster(name="c1")
    assert (await eks.describe_cluster(name="c1"))["cluster"]["status"] == "DELETING"
    await cloud.aws.advance(6)
    with refusal("ResourceNotFoundException", 404):
        await eks.describe_cluster(name="c1")


async def test_a_vpc_and_its_subnets_stay_while_a_balancer_or_a_group_is_in_them(cloud: AwsTestAccount) -> None:
    ec2, elbv2, builder = await cloud.client("ec2"), await cloud.client("elbv2"), cloud.builder
    vpc = await builder.vpc()
    group = await builder.group(vpc, OURS)
    balancer = await builder.balancer(vpc, OURS)
    with refusal("DependencyViolation"):
        await ec2.delete_subnet(SubnetId=vpc.subnets[0])
    await cloud.aws.behave(drain=0)
    await elbv2.delete_load_balancer(LoadBalancerArn=balancer)
    for subnet in vpc.subnets:
        await ec2.delete_subnet(SubnetId=subnet)
    with refusal("DependencyViolation"):
        await ec2.delete_vpc(VpcId=vpc.id)
    await ec2.delete_security_group(GroupId=group)
    await ec2.delete_vpc(VpcId=vpc.id)


async def test_an_instance_and_an_endpoint_hold_their_group_and_take_their_interface_with_them(
    cloud: AwsTestAccount,
) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    of_instance, of_endpoint = [await builder.group(vpc, OURS) for _ in range(2)]
    instance = await builder.instance(vpc, [of_instance])
    endpoint = await builder.endpoint(vpc, [of_endpoint])
    [interface] = await interfaces_in(cloud, of_instance)
    with refusal("InvalidParameterValue"):
        await ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    for group in (of_instance, of_endpoint):
        with refusal("DependencyViolation"):
            await ec2.delete_security_group(GroupId=group)
    await cloud.aws.behave(endpoint_goes=0)
    await ec2.terminate_instances(InstanceIds=[instance])
    await ENDPOINT.remove(ec2, endpoint)
    assert await interfaces_in(cloud, of_instance, of_endpoint) == []
    for group in (of_instance, of_endpoint):
        await ec2.delete_security_group(GroupId=group)
