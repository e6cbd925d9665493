"""Errors of the stand-in for AWS: token buckets with AWS's codes, denials, broken and lost responses, roles that do not
trust the caller. All of them are in its journal."""

import asyncio
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as CutOff
from botocore.parsers import ResponseParserError

from standins.aws import AssumableRole, AwsFault
from standins.aws.tags import by_cloud_provider
from tests.aws import AwsTestAccount, refusal
from tests.aws_kinds import EC2_KINDS

pytestmark = pytest.mark.long

OURS = by_cloud_provider("c1")
CUT_OFF = (CutOff, HTTPClientError, aiohttp.ClientError)


async def codes(*calls: Any) -> list[str]:
    """One after the other; empty for what succeeded."""
    found = []
    for call in calls:
        try:
            await call
            found.append("")
        except ClientError as error:
            found.append(f"{error.response['Error']['Code']} {error.response['ResponseMetadata']['HTTPStatusCode']}")
    return found


async def test_each_action_of_ec2_has_a_bucket_that_refills_by_the_clock(cloud: AwsTestAccount) -> None:
    ec2 = await cloud.client("ec2")
    await cloud.aws.set_rate(0)
    missing = "sg-00000000000000000"
    spent = await codes(*(ec2.delete_security_group(GroupId=missing) for _ in range(52)))
    assert spent == ["InvalidGroup.NotFound 400"] * 50 + ["RequestLimitExceeded 503"] * 2
    await ec2.describe_security_groups(Filters=[{"Name": "group-id", "Values": [missing]}])
    await cloud.aws.advance(1)
    refilled = await codes(*(ec2.delete_security_group(GroupId=missing) for _ in range(6)))
    assert refilled == ["InvalidGroup.NotFound 400"] * 5 + ["RequestLimitExceeded 503"]


@pytest.mark.parametrize(
    ("operation", "arguments", "capacity"),
    [
        ("describe_security_groups", {}, 50),
        ("describe_security_groups", {"Filters": [{"Name": "group-id", "Values": ["sg-1"]}]}, 100),
        *(
            pytest.param(row.delete, row.deletes(row.missing()), row.delete_bucket[0], id=row.delete)
            for row in EC2_KINDS.values()
            if row.delete_bucket
        ),
    ],
)
async def test_buckets_of_ec2_are_as_large_as_aws_has_them(
    cloud: AwsTestAccount, operation: str, arguments: dict[str, Any], capacity: int
) -> None:
    ec2 = await cloud.client("ec2")
    await cloud.aws.set_rate(0)
    answers = await codes(*(getattr(ec2, operation)(**arguments) for _ in range(capacity + 1)))
    assert answers.index("RequestLimitExceeded 503") == capacity


async def test_changes_of_elb_share_a_bucket_and_v1_and_v2_have_their_own(cloud: AwsTestAccount) -> None:
    elb, elbv2 = await cloud.client("elb"), await cloud.client("elbv2")
    await cloud.aws.set_rate(0)
    arn = f"arn:aws:elasticloadbalancing:eu-west-1:{cloud.account}:targetgroup/none/0123456789abcdef"
    balancer = arn.replace("targetgroup/", "loadbalancer/app/")
    assert await codes(*(elbv2.delete_load_balancer(LoadBalancerArn=balancer) for _ in range(19))) == [""] * 19
    assert await codes(*(elbv2.delete_target_group(TargetGroupArn=arn) for _ in range(2))) == [
        "TargetGroupNotFound 400",
        "Throttling 400",
    ]
    # All calls of v2 together: 40, of which 20 are spent.
    assert await codes(*(elbv2.describe_load_balancers() for _ in range(21))) == [""] * 20 + ["Throttling 400"]
    assert await codes(*(elb.delete_load_balancer(LoadBalancerName="none") for _ in range(21))) == [
        *[""] * 20,
        "Throttling 400",
    ]
    await cloud.aws.advance(1)
    assert await codes(*(elbv2.delete_load_balancer(LoadBalancerArn=balancer) for _ in range(4))) == [
        *[""] * 3,
        "Throttling 400",
    ]


async def test_the_tagging_api_answers_fifteen_times_a_second(cloud: AwsTestAccount) -> None:
    tagging = await cloud.client("resourcegroupstaggingapi")
    await cloud.aws.set_rate(0)
    for _ in range(2):
        answers = await codes(*(tagging.get_resources() for _ in range(16)))
        assert answers == [""] * 15 + ["ThrottledException 400"]
        await cloud.aws.advance(1)


async def test_accounts_and_regions_share_no_bucket_and_no_resource(cloud: AwsTestAccount) -> None:
    here = await cloud.client("ec2")
    away = [await cloud.client("ec2", region="us-east-2"), await cloud.client("ec2", account="999900001111")]
    await cloud.aws.set_rate(0)
    group = await cloud.builder.group(await cloud.builder.vpc(), OURS)
    await codes(*(here.delete_nat_gateway(NatGatewayId="nat-0") for _ in range(10)))
    assert await codes(here.delete_nat_gateway(NatGatewayId="nat-0")) == ["RequestLimitExceeded 503"]
    for client in away:
        assert await codes(client.delete_nat_gateway(NatGatewayId="nat-0")) == ["NatGatewayNotFound 400"]
        assert await codes(client.delete_security_group(GroupId=group)) == ["InvalidGroup.NotFound 400"]


async def test_every_service_denies_with_its_own_code(cloud: AwsTestAccount) -> None:
    ec2, elb, elbv2 = await cloud.client("ec2"), await cloud.client("elb"), await cloud.client("elbv2")
    tagging, eks, sts = [await cloud.client(name) for name in ("resourcegroupstaggingapi", "eks", "sts")]
    await cloud.aws.set_faults(AwsFault(what="deny"))
    assert await codes(
        ec2.describe_vpcs(),
        elb.describe_load_balancers(),
        elbv2.describe_load_balancers(),
        tagging.get_resources(),
        eks.describe_cluster(name="c1"),
        sts.get_caller_identity(),
    ) == [
        "UnauthorizedOperation 403",
        "AccessDenied 403",
        "AccessDenied 403",
        "AccessDeniedException 400",
        "AccessDeniedException 403",
        "AccessDenied 403",
    ]


async def test_a_fault_meets_only_what_it_is_about_and_only_so_often(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    first, second = [await builder.group(vpc, OURS) for _ in range(2)]
    await cloud.aws.set_faults(AwsFault(what="deny", action="ec2.Delete*", about=first, times=1))
    assert await codes(ec2.delete_security_group(GroupId=second)) == [""]
    assert await codes(ec2.delete_security_group(GroupId=first)) == ["UnauthorizedOperation 403"]
    assert await codes(ec2.delete_security_group(GroupId=first)) == [""]


async def test_a_proxys_page_is_no_answer_that_the_sdk_can_read(cloud: AwsTestAccount) -> None:
    elbv2 = await cloud.client("elbv2")
    await cloud.aws.set_faults(AwsFault(what="html"))
    with pytest.raises(ResponseParserError):
        await elbv2.describe_load_balancers()
    assert await cloud.requests() == [(500, "html")]


async def test_a_closed_connection_did_nothing_and_a_lost_answer_did_everything(cloud: AwsTestAccount) -> None:
    ec2, builder = await cloud.client("ec2"), cloud.builder
    vpc = await builder.vpc()
    kept, gone = [await builder.group(vpc, OURS) for _ in range(2)]
    await cloud.aws.set_faults(AwsFault(what="close", about=kept), AwsFault(what="lost", about=gone))
    for group in (kept, gone):
        with pytest.raises(CUT_OFF):
            await ec2.delete_security_group(GroupId=group)
    assert await builder.standing() == {kept}
    assert [status for status, _ in await cloud.requests("ec2.DeleteSecurityGroup")] == [0, 0]


async def test_a_slow_response_delays_no_other_call(cloud: AwsTestAccount) -> None:
    ec2, elb = await cloud.client("ec2"), await cloud.client("elb")
    await cloud.aws.set_faults(AwsFault(what="slow", action="ec2.*", seconds=30))
    slow = asyncio.create_task(ec2.describe_vpcs())
    await elb.describe_load_balancers()
    assert not slow.done()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_an_error_of_choice_comes_as_the_service_would_write_it(cloud: AwsTestAccount) -> None:
    tagging, elbv2 = await cloud.client("resourcegroupstaggingapi"), await cloud.client("elbv2")
    await cloud.aws.set_faults(
        AwsFault(what="error", action="tagging.*", code="UnknownEndpoint", status=404),
        AwsFault(what="throttle", action="elbv2.*", times=1),
        AwsFault(what="error", action="elbv2.*", code="DependencyThrottle", status=400),
    )
    assert await codes(tagging.get_resources(), elbv2.describe_load_balancers(), elbv2.describe_load_balancers()) == [
        "UnknownEndpoint 404",
        "Throttling 400",
        "DependencyThrottle 400",
    ]


async def test_a_role_is_given_to_whom_it_trusts_with_the_right_external_id(cloud: AwsTestAccount) -> None:
    tenant, further = "444455556666", "777788889999"
    first, second = f"arn:aws:iam::{tenant}:role/first", f"arn:aws:iam::{further}:role/second"
    await cloud.aws.behave(
        roles={
            first: AssumableRole(external_id="secret", principals=(cloud.account,)),
            second: AssumableRole(principals=(first,)),
        }
    )
    sts = await cloud.client("sts")

    async def assume(client: Any, role: str, **more: str) -> dict[str, str]:
        made = (await client.assume_role(RoleArn=role, RoleSessionName="knell", **more))["Credentials"]
        return {
            "aws_access_key_id": made["AccessKeyId"],
            "aws_secret_access_key": made["SecretAccessKey"],
            "aws_session_token": made["SessionToken"],
        }

    with refusal("AccessDenied", 403):
        await assume(sts, first)
    with refusal("AccessDenied", 403):
        await assume(sts, first, ExternalId="wrong")
    with refusal("AccessDenied", 403):
        await assume(sts, second)
    with refusal("AccessDenied", 403):
        await assume(sts, f"{first}-unknown", ExternalId="secret")
    as_first = await cloud.client("sts", **await assume(sts, first, ExternalId="secret"))
    who = await as_first.get_caller_identity()
    assert (who["Account"], who["Arn"]) == (tenant, f"arn:aws:sts::{tenant}:assumed-role/first/knell")
    keys = await assume(as_first, second)
    assert (await (await cloud.client("sts", **keys)).get_caller_identity())["Account"] == further
    vpcs = await (await cloud.client("ec2", **keys)).describe_vpcs()
    assert {one["OwnerId"] for one in vpcs["Vpcs"]} == {further}
    await cloud.aws.advance(3601)
    with refusal("RequestExpired"):
        await (await cloud.client("ec2", **keys)).describe_vpcs()


async def test_a_token_of_a_service_account_gives_the_role_that_expects_one(cloud: AwsTestAccount) -> None:
    role = f"arn:aws:iam::{cloud.account}:role/irsa"
    await cloud.aws.behave(roles={role: AssumableRole(principals=("AssumeRoleWithWebIdentity",))})
    sts = await cloud.client("sts", account="444455556666")
    asked = {"RoleSessionName": "knell", "WebIdentityToken": "a" * 40}
    made = (await sts.assume_role_with_web_identity(RoleArn=role, **asked))["Credentials"]
    as_role = await cloud.client(
        "sts", aws_access_key_id=made["AccessKeyId"], aws_secret_access_key=made["SecretAccessKey"]
    )
    assert (await as_role.get_caller_identity())["Account"] == cloud.account
    with refusal("AccessDenied", 403):
        await sts.assume_role_with_web_identity(RoleArn=f"{role}-other", **asked)
    with refusal("AccessDenied", 403):
        await sts.assume_role(RoleArn=role, RoleSessionName="knell")


async def test_a_key_acts_in_the_account_whose_number_is_in_it_in_every_partition(cloud: AwsTestAccount) -> None:
    for region, partition in (("eu-west-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")):
        sts = await cloud.client("sts", region=region)
        who = await sts.get_caller_identity()
        assert who["Account"] == cloud.account
        assert who["Arn"].startswith(f"arn:{partition}:")


async def test_the_journal_has_every_request_and_knows_the_builders(cloud: AwsTestAccount) -> None:
    ec2, elb = await cloud.client("ec2"), await cloud.client("elb")
    made = await cloud.builder.cluster_resources("c1", entangled=True)
    await codes(ec2.delete_security_group(GroupId=made.groups[0]), elb.describe_load_balancers())
    assert await cloud.requests() == [(400, "DependencyViolation"), (200, "")]
    [entry] = [one for one in await cloud.aws.requests("ec2.DeleteSecurityGroup") if one.account == cloud.account]
    assert (entry.region, entry.ids) == ("eu-west-1", (made.groups[0],))
    built = [one for one in await cloud.aws.journal() if one.setup and one.account == cloud.account]
    assert [one.action for one in built].count("ec2.CreateSecurityGroup") == 4
