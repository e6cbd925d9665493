"""Lists of the stand-in for AWS: ARNs of every type, pages that are short, empty and survive deletions, limits of
requested values, and a tagging API that still shows deleted resources."""

from typing import Any

import pytest

from standins.aws import StrayTagMapping
from standins.aws.tags import by_cloud_provider
from tests.aws import AwsTestAccount, refusal
from tests.aws_kinds import AWS_KINDS, EC2_KINDS, AwsKindRow

pytestmark = pytest.mark.long

OURS = by_cloud_provider("c1", "default/web")
FILTER = [{"Key": "kubernetes.io/cluster/c1", "Values": ["owned"]}]


async def tagged(client: Any, size: int = 100) -> list[list[str]]:
    """The ARNs, page by page."""
    pages, token = [], ""
    while True:
        page = await client.get_resources(TagFilters=FILTER, ResourcesPerPage=size, PaginationToken=token)
        pages.append([one["ResourceARN"] for one in page["ResourceTagMappingList"]])
        if not (token := page["PaginationToken"]):
            return pages


async def test_balancers_have_arns_of_their_type_wherever_they_show(cloud: AwsTestAccount) -> None:
    elbv2, tagging, builder = await cloud.client("elbv2"), await cloud.client("resourcegroupstaggingapi"), cloud.builder
    vpc = await builder.vpc()
    app, net, gwy = [await builder.balancer(vpc, OURS, of=of) for of in ("app", "net", "gwy")]
    for arn, of in ((app, "app"), (net, "net"), (gwy, "gwy")):
        assert f":{cloud.account}:loadbalancer/{of}/" in arn
        group = await builder.target_group(vpc, OURS, behind=arn)
        [listener] = (await elbv2.describe_listeners(LoadBalancerArn=arn))["Listeners"]
        assert f":listener/{of}/" in listener["ListenerArn"]
        [tags] = (await elbv2.describe_tags(ResourceArns=[arn]))["TagDescriptions"]
        assert {one["Key"]: one["Value"] for one in tags["Tags"]} == OURS
        [described] = (await elbv2.describe_target_groups(LoadBalancerArn=arn))["TargetGroups"]
        assert (described["TargetGroupArn"], described["LoadBalancerArns"]) == (group, [arn])
    described = await elbv2.describe_load_balancers(LoadBalancerArns=[app, net, gwy])
    assert {one["LoadBalancerArn"]: one["Type"] for one in described["LoadBalancers"]} == {
        app: "application",
        net: "network",
        gwy: "gateway",
    }
    assert {app, net, gwy} <= set((await tagged(tagging))[0])
    for arn in (app, net, gwy):
        await elbv2.delete_load_balancer(LoadBalancerArn=arn)
    assert (await elbv2.describe_load_balancers())["LoadBalancers"] == []


async def test_one_missing_balancer_fails_the_whole_describe(cloud: AwsTestAccount) -> None:
    elbv2, elb, builder = await cloud.client("elbv2"), await cloud.client("elb"), cloud.builder
    vpc = await builder.vpc()
    there, gone = [await builder.balancer(vpc, OURS) for _ in range(2)]
    await elbv2.delete_load_balancer(LoadBalancerArn=gone)
    with refusal("LoadBalancerNotFound"):
        await elbv2.describe_load_balancers(LoadBalancerArns=[there, gone])
    with refusal("LoadBalancerNotFound"):
        await elbv2.describe_tags(ResourceArns=[there, gone])
    group, deleted = [await builder.target_group(vpc, OURS) for _ in range(2)]
    await elbv2.delete_target_group(TargetGroupArn=deleted)
    with refusal("TargetGroupNotFound"):
        await elbv2.describe_target_groups(TargetGroupArns=[group, deleted])
    with refusal("TargetGroupNotFound"):
        await elbv2.describe_tags(ResourceArns=[group, deleted])
    classic = await builder.classic(vpc, OURS)
    with refusal("LoadBalancerNotFound"):
        await elb.describe_load_balancers(LoadBalancerNames=[classic, "nobody"])
    with refusal("LoadBalancerNotFound"):
        await elb.describe_tags(LoadBalancerNames=[classic, "nobody"])


async def test_tags_of_more_than_twenty_are_not_described(cloud: AwsTestAccount) -> None:
    elbv2, elb, builder = await cloud.client("elbv2"), await cloud.client("elb"), cloud.builder
    vpc = await builder.vpc()
    groups = [await builder.target_group(vpc, OURS) for _ in range(21)]
    assert len((await elbv2.describe_tags(ResourceArns=groups[:20]))["TagDescriptions"]) == 20
    with refusal("ValidationError"):
        await elbv2.describe_tags(ResourceArns=groups)
    classics = [await builder.classic(vpc, OURS) for _ in range(21)]
    assert len((await elb.describe_tags(LoadBalancerNames=classics[:20]))["TagDescriptions"]) == 20
    with refusal("ValidationError"):
        await elb.describe_tags(LoadBalancerNames=classics)


async def test_filters_of_ec2_never_fail_on_what_is_missing(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    groups = [await builder.group(vpc, OURS) for _ in range(2)]
    missing = "sg-00000000000000000"
    found = await ec2.describe_security_groups(Filters=[{"Name": "group-id", "Values": [*groups, missing]}])
    assert {one["GroupId"] for one in found["SecurityGroups"]} == set(groups)
    with refusal("InvalidGroup.NotFound"):
        await ec2.describe_security_groups(GroupIds=[*groups, missing])


async def test_an_interface_in_several_groups_is_found_by_any_of_them(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    one, other, third = [await builder.group(vpc, OURS) for _ in range(3)]
    interface = await builder.interface(vpc, [one, other])
    found = await ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [other, third]}])
    assert [each["NetworkInterfaceId"] for each in found["NetworkInterfaces"]] == [interface]


async def test_deleting_between_two_pages_loses_nothing(cloud: AwsTestAccount) -> None:
    elbv2, elb, builder = await cloud.client("elbv2"), await cloud.client("elb"), cloud.builder
    vpc = await builder.vpc()
    balancers = {await builder.balancer(vpc, OURS) for _ in range(5)}
    groups = {await builder.target_group(vpc, OURS) for _ in range(5)}
    classics = {await builder.classic(vpc, OURS) for _ in range(5)}
    for client, describe, key, name, delete, all_of in (
        (elbv2, "describe_load_balancers", "LoadBalancers", "LoadBalancerArn", "delete_load_balancer", balancers),
        (elbv2, "describe_target_groups", "TargetGroups", "TargetGroupArn", "delete_target_group", groups),
        (
            elb,
            "describe_load_balancers",
            "LoadBalancerDescriptions",
            "LoadBalancerName",
            "delete_load_balancer",
            classics,
        ),
    ):
        seen: list[str] = []
        marker: dict[str, str] = {}
        while True:
            page = await getattr(client, describe)(PageSize=2, **marker)
            assert len(page[key]) <= 2
            for one in page[key]:
                seen.append(one[name])
                await getattr(client, delete)(**{name: one[name]})
            if "NextMarker" not in page:
                break
            marker = {"Marker": page["NextMarker"]}
        assert sorted(seen) == sorted(all_of)


async def test_a_page_without_a_wanted_size_ends_too(cloud: AwsTestAccount) -> None:
    elbv2, builder = await cloud.client("elbv2"), cloud.builder
    vpc = await builder.vpc()
    for _ in range(3):
        await builder.target_group(vpc, OURS)
    await cloud.aws.behave(page_size=2)
    page = await elbv2.describe_target_groups()
    assert (len(page["TargetGroups"]), "NextMarker" in page) == (2, True)


async def test_pages_of_ec2_are_no_longer_than_asked_for(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    groups = {await builder.group(vpc, OURS) for _ in range(12)}
    seen: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = await ec2.describe_security_groups(
            Filters=[{"Name": "tag-key", "Values": ["kubernetes.io/cluster/c1"]}], MaxResults=5, **token
        )
        assert len(page["SecurityGroups"]) <= 5
        for one in page["SecurityGroups"]:
            assert {pair["Key"] for pair in one["Tags"]} == set(OURS)
            seen.append(one["GroupId"])
            await ec2.delete_security_group(GroupId=one["GroupId"])
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert sorted(seen) == sorted(groups)


async def test_ec2_answers_in_pages_also_without_a_page_size(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    for _ in range(3):
        await builder.instance(vpc, tags=OURS)
        for row in EC2_KINDS.values():
            await row.make(builder, vpc, OURS)
    await cloud.aws.behave(ec2_page_size=2)
    by_tag = [{"Name": "tag-key", "Values": ["kubernetes.io/cluster/c1"]}]
    paged = [("describe_instances", "Reservations")]
    paged += [(row.describe, row.items) for row in EC2_KINDS.values() if row.paged]
    for operation, key in paged:
        ask = getattr(ec2, operation)
        for size in ({}, {"MaxResults": 100}):
            page = await ask(Filters=by_tag, **size)
            rest = await ask(Filters=by_tag, NextToken=page["NextToken"], **size)
            assert (len(page[key]), len(rest[key]), "NextToken" in rest) == (2, 1, False), operation
    for row in EC2_KINDS.values():
        if not row.paged:
            assert len((await getattr(ec2, row.describe)(Filters=by_tag))[row.items]) == 3
    with refusal("InvalidParameterValue"):
        await ec2.describe_volumes(NextToken="nobody's")


async def test_an_account_with_many_instances_shows_them_all(cloud: AwsTestAccount) -> None:
    ec2, vpc = await cloud.client("ec2"), await cloud.builder.vpc()
    made = {await cloud.builder.instance(vpc) for _ in range(101)}
    answer = await ec2.describe_instances()
    assert {one["InstanceId"] for reservation in answer["Reservations"] for one in reservation["Instances"]} == made


async def test_one_call_of_ec2_takes_two_hundred_values_in_all_its_filters(cloud: AwsTestAccount) -> None:
    ec2 = await cloud.client("ec2")
    ids = [f"i-{number:017x}" for number in range(200)]
    by_id, by_state = {"Name": "instance-id", "Values": ids}, {"Name": "instance-state-name", "Values": ["running"]}
    await ec2.describe_instances(Filters=[by_id])
    with refusal("FilterLimitExceeded"):
        await ec2.describe_instances(Filters=[by_id, by_state])
    with refusal("FilterLimitExceeded"):
        await ec2.describe_nat_gateways(Filter=[{"Name": "nat-gateway-id", "Values": [*ids, "nat-1"]}])
    with refusal("FilterLimitExceeded"):
        await ec2.describe_addresses(Filters=[{"Name": "allocation-id", "Values": [*ids, "eipalloc-1"]}])


async def test_the_tagging_api_shows_what_is_made_after_a_while(cloud: AwsTestAccount) -> None:
    tagging, elbv2, builder = await cloud.client("resourcegroupstaggingapi"), await cloud.client("elbv2"), cloud.builder
    vpc = await builder.vpc()
    old = await builder.target_group(vpc, OURS)
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(created_unlisted=30.0)
    new = await builder.target_group(vpc, OURS)
    group = await builder.group(vpc, OURS)
    assert await tagged(tagging) == [[old]]
    assert len((await elbv2.describe_target_groups())["TargetGroups"]) == 2
    await cloud.aws.advance(29)
    assert await tagged(tagging) == [[old]]
    await cloud.aws.advance(2)
    assert sorted((await tagged(tagging))[0]) == sorted(
        [old, new, f"arn:aws:ec2:eu-west-1:{cloud.account}:security-group/{group}"]
    )


async def test_the_tagging_api_shows_what_is_deleted_for_a_while(cloud: AwsTestAccount) -> None:
    ec2, elbv2, elb = await cloud.client("ec2"), await cloud.client("elbv2"), await cloud.client("elb")
    tagging, builder = await cloud.client("resourcegroupstaggingapi"), cloud.builder
    made = await builder.cluster_resources("c1")
    volume, address = await builder.volume(OURS), await builder.elastic_ip(OURS)
    await cloud.aws.set_rate(0)
    await cloud.aws.behave(drain=0)
    before = (await tagged(tagging))[0]
    assert len(before) == 12
    assert f"arn:aws:ec2:eu-west-1:{cloud.account}:elastic-ip/{address}" in before
    assert f"arn:aws:elasticloadbalancing:eu-west-1:{cloud.account}:loadbalancer/{made.classic[0]}" in before
    await elb.delete_load_balancer(LoadBalancerName=made.classic[0])
    for arn in made.balancers:
        await elbv2.delete_load_balancer(LoadBalancerArn=arn)
    for arn in made.target_groups:
        await elbv2.delete_target_group(TargetGroupArn=arn)
    for group in made.groups:
        await ec2.delete_security_group(GroupId=group)
    await ec2.delete_volume(VolumeId=volume)
    await ec2.release_address(AllocationId=address)
    assert await builder.standing() == set()
    assert (await tagged(tagging))[0] == before
    await cloud.aws.advance(61)
    assert await tagged(tagging) == [[]]


@pytest.mark.parametrize("row", [row for row in AWS_KINDS.values() if row.in_tagging_api], ids=lambda row: row.name)
async def test_the_tagging_api_shows_each_kind_until_a_while_after_its_deletion(
    cloud: AwsTestAccount, row: AwsKindRow
) -> None:
    tagging, client = await cloud.client("resourcegroupstaggingapi"), await cloud.client(row.service)
    # Else a NAT gateway that is gone is shown for an hour.
    await cloud.aws.behave(nat_gateway_shows=0)
    await cloud.aws.set_rate(0)
    one, other = [await row.make(cloud.builder, await cloud.builder.vpc(), OURS) for _ in range(2)]
    arn, others = [row.arn_of(id_, cloud.account) for id_ in (one, other)]
    assert sorted((await tagged(tagging))[0]) == sorted([arn, others])
    assert await row.remove(client, one) == ""
    assert arn in (await tagged(tagging))[0]
    await cloud.aws.advance(61)
    assert await tagged(tagging) == [[others]]


async def test_what_was_refused_does_not_haunt_the_tagging_api(cloud: AwsTestAccount) -> None:
    ec2, tagging, builder = await cloud.client("ec2"), await cloud.client("resourcegroupstaggingapi"), cloud.builder
    vpc = await builder.vpc()
    group = await builder.group(vpc, by_cloud_provider("c1"))
    await builder.interface(vpc, [group])
    with refusal("DependencyViolation"):
        await ec2.delete_security_group(GroupId=group)
    assert await tagged(tagging) == [[f"arn:aws:ec2:eu-west-1:{cloud.account}:security-group/{group}"]]


async def test_tagging_pages_are_short_and_empty_and_lose_nothing_to_deletions(cloud: AwsTestAccount) -> None:
    ec2, tagging, builder = await cloud.client("ec2"), await cloud.client("resourcegroupstaggingapi"), cloud.builder
    await cloud.aws.behave(deleted_listed=0)
    vpc = await builder.vpc()
    groups = [await builder.group(vpc, by_cloud_provider("c1")) for _ in range(25)]
    pages, token = [], ""
    while True:
        page = await tagging.get_resources(TagFilters=FILTER, ResourcesPerPage=6, PaginationToken=token)
        shown = [one["ResourceARN"].rpartition("/")[2] for one in page["ResourceTagMappingList"]]
        for group in shown:
            await ec2.delete_security_group(GroupId=group)
        pages.append(shown)
        if not (token := page["PaginationToken"]):
            break
    assert [len(page) for page in pages] == [6, 3, 0, 6, 6, 4]
    assert sorted(group for page in pages for group in page) == sorted(groups)
    with refusal("InvalidParameterException"):
        await tagging.get_resources(ResourcesPerPage=101)


async def test_a_tagging_token_lives_a_quarter_of_an_hour(cloud: AwsTestAccount) -> None:
    tagging, builder = await cloud.client("resourcegroupstaggingapi"), cloud.builder
    vpc = await builder.vpc()
    for _ in range(3):
        await builder.group(vpc, by_cloud_provider("c1"))
    page = await tagging.get_resources(TagFilters=FILTER, ResourcesPerPage=1)
    await cloud.aws.advance(901)
    with refusal("PaginationTokenExpiredException"):
        await tagging.get_resources(TagFilters=FILTER, PaginationToken=page["PaginationToken"])


async def test_strays_show_in_the_account_they_are_said_to_be_in(cloud: AwsTestAccount) -> None:
    tagging, other = [
        await cloud.client("resourcegroupstaggingapi", account=account) for account in ("", "999988887777")
    ]
    await cloud.aws.behave(strays=[StrayTagMapping(arn="arn:aws:what", tags=OURS, account=cloud.account)])
    assert await tagged(tagging) == [["arn:aws:what"]]
    assert await tagged(other) == [[]]
