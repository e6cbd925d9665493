"""Calls to AWS: one request each, whatever comes back, and lists to their end.
What is no answer of AWS never looks like an empty one."""

from datetime import timedelta
from typing import Any

import pytest

from service.settings import Settings
from standins.aws import Fault, Stray
from tests.canned_server import CLOSE, canned_server
from tests.integration.aws_access import OWN, REGION, Stage
from workers.handlers.aws.access import Access
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Whose
from workers.handlers.aws.reach import AwsCalls, AwsReach
from workers.handlers.aws.sessions import Sessions
from workers.handlers.places import Places

TAG = {"kubernetes.io/cluster/c": "owned"}


@pytest.fixture
async def calls(stage: Stage) -> AwsCalls:
    return await stage.reach.calls(stage.whose())


async def fault(calls: AwsCalls, service: str, operation: str, **arguments: Any) -> AwsError:
    with pytest.raises(AwsError) as failed:
        await calls.call(service, operation, **arguments)
    return failed.value


# ---- what comes back


@pytest.mark.parametrize(
    ("service", "operation", "code", "action"),
    [
        ("ec2", "describe_vpcs", "UnauthorizedOperation", "ec2:DescribeVpcs"),
        ("elb", "describe_load_balancers", "AccessDenied", "elasticloadbalancing:DescribeLoadBalancers"),
        ("elbv2", "describe_target_groups", "AccessDenied", "elasticloadbalancing:DescribeTargetGroups"),
        ("resourcegroupstaggingapi", "get_resources", "AccessDeniedException", "tag:GetResources"),
        ("eks", "list_clusters", "AccessDeniedException", "eks:ListClusters"),
    ],
)
async def test_a_denial_names_the_permission(
    stage: Stage, calls: AwsCalls, service: str, operation: str, code: str, action: str
) -> None:
    await stage.aws.trouble(Fault(what="deny"))
    denied = await fault(calls, service, operation)
    assert (denied.what, denied.code, denied.action) == ("denied", code, action)


@pytest.mark.parametrize("service", ["ec2", "elb", "elbv2", "resourcegroupstaggingapi"])
async def test_a_throttled_call_is_made_once_and_no_more(stage: Stage, calls: AwsCalls, service: str) -> None:
    await stage.aws.trouble(Fault(what="throttle"))
    operation = {"ec2": "describe_vpcs", "resourcegroupstaggingapi": "get_resources"}.get(
        service, "describe_load_balancers"
    )
    before = len(await stage.asked())
    assert (await fault(calls, service, operation)).what == "throttled"
    assert len(await stage.asked()) == before + 1


async def test_something_that_is_not_there_is_gone(calls: AwsCalls) -> None:
    assert (await fault(calls, "ec2", "delete_security_group", GroupId="sg-0123456789abcdef0")).what == "gone"
    missing = f"arn:aws:elasticloadbalancing:{REGION}:{OWN}:targetgroup/none/0123456789abcdef"
    assert (await fault(calls, "elbv2", "describe_target_groups", TargetGroupArns=[missing])).what == "gone"
    assert (await fault(calls, "elb", "describe_load_balancers", LoadBalancerNames=["none"])).what == "gone"
    assert (await fault(calls, "eks", "describe_cluster", name="none")).what == "gone"


@pytest.mark.parametrize("service", ["ec2", "elb", "resourcegroupstaggingapi"])
async def test_a_proxy_s_page_is_unreadable(stage: Stage, calls: AwsCalls, service: str) -> None:
    await stage.aws.trouble(Fault(what="html", status=500))
    operation = {"ec2": "describe_vpcs", "elb": "describe_load_balancers"}.get(service, "get_resources")
    assert (await fault(calls, service, operation)).what == "unreadable"


@pytest.mark.parametrize("what", ["close", "lost"])
async def test_a_connection_that_ends_says_nothing_and_is_not_tried_again(
    stage: Stage, calls: AwsCalls, what: Any
) -> None:
    await stage.aws.trouble(Fault(what=what, action="ec2.*"))
    assert (await fault(calls, "ec2", "describe_vpcs")).what == "unreachable"
    assert len(await stage.asked("ec2.DescribeVpcs")) == 1


async def test_a_service_that_is_in_trouble_says_nothing(stage: Stage, calls: AwsCalls) -> None:
    await stage.aws.trouble(Fault(what="error", code="InternalError", status=500))
    assert (await fault(calls, "ec2", "describe_vpcs")).what == "unreachable"


def answer(body: bytes, kind: bytes = b"text/html") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


@pytest.mark.parametrize("service", ["ec2", "elb", "elbv2", "resourcegroupstaggingapi", "eks"])
@pytest.mark.parametrize("page", [b"<html><body><p>Sign in</p></body></html>", b"{}", b""])
async def test_a_page_with_status_200_is_not_an_empty_answer(service: str, page: bytes) -> None:
    operation = {"ec2": "describe_vpcs", "eks": "list_clusters", "resourcegroupstaggingapi": "get_resources"}.get(
        service, "describe_load_balancers"
    )
    async with canned_server([[answer(page)]]) as (_, port), Sessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(Access("AKIA1", "s"), REGION, service, operation, {})
    assert failed.value.what == "unreadable"


async def test_an_answer_that_breaks_off_says_nothing() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<DescribeVpcsResponse>|" + CLOSE
    async with canned_server([[half]]) as (_, port), Sessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(Access("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert failed.value.what == "unreachable"


async def test_an_answer_that_never_ends_is_given_up() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<DescribeVpcsResponse>"
    async with (
        canned_server([[half]]) as (_, port),
        Sessions(f"http://127.0.0.1:{port}", within=timedelta(seconds=3)) as sessions,
    ):
        with pytest.raises(AwsError) as failed:
            await sessions.call(Access("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert (failed.value.what, failed.value.code) == ("unreachable", "NoAnswerInTime")


async def test_nobody_at_the_address_says_nothing() -> None:
    async with canned_server([]) as (_, port):
        pass
    async with Sessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(Access("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert failed.value.what == "unreachable"


# ---- lists


async def tagged(calls: AwsCalls) -> list[str]:
    filters = [{"Key": key, "Values": [value]} for key, value in TAG.items()]
    pages = calls.pages(
        "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters, ResourcesPerPage=100
    )
    return [found["ResourceARN"] async for page in pages for found in page]


async def test_a_list_goes_on_over_short_and_empty_pages_to_its_end(stage: Stage, calls: AwsCalls) -> None:
    arns = [f"arn:aws:ec2:{REGION}:{OWN}:security-group/sg-{number:017x}" for number in range(450)]
    await stage.aws.behave(strays=[Stray(arn=arn, tags=TAG, account=OWN) for arn in arns], uneven_pages=True)
    assert sorted(await tagged(calls)) == sorted(arns)
    assert len(await stage.asked("tagging.GetResources")) > 5


async def test_a_list_that_loses_its_place_fails_as_a_whole(stage: Stage, calls: AwsCalls) -> None:
    arns = [f"arn:aws:ec2:{REGION}:{OWN}:security-group/sg-{number:017x}" for number in range(250)]
    await stage.aws.behave(strays=[Stray(arn=arn, tags=TAG, account=OWN) for arn in arns])
    pages = calls.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", ResourcesPerPage=100)
    assert await anext(pages)
    await stage.aws.trouble(Fault(what="error", code="PaginationTokenExpiredException", status=400))
    with pytest.raises(AwsError, match="PaginationTokenExpiredException"):
        await anext(pages)


async def test_pages_that_go_in_a_circle_are_no_list() -> None:
    body = b'{"PaginationToken":"again","ResourceTagMappingList":[]}'
    head = b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with canned_server([[head] * 3]) as (_, port), lone_reach(f"http://127.0.0.1:{port}") as reach:
        calls = AwsCalls(reach, WHOSE, Access("AKIA1", "s"), OWN, float("inf"))
        with pytest.raises(AwsError, match="comes back to a page"):
            await tagged(calls)


async def test_an_answer_without_its_list_is_no_empty_list() -> None:
    head = b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 1\r\nContent-Length: 2\r\n\r\n{}"
    async with canned_server([[head]]) as (_, port), lone_reach(f"http://127.0.0.1:{port}") as reach:
        calls = AwsCalls(reach, WHOSE, Access("AKIA1", "s"), OWN, float("inf"))
        with pytest.raises(AwsError, match="no empty list") as raised:
            await tagged(calls)
        assert raised.value.what == "unreadable"


WHOSE = Whose(source="s", namespace="n", region=REGION)


def lone_reach(endpoint: str) -> AwsReach:
    async def remembered() -> dict[str, str]:
        return {}

    return AwsReach(Places(Settings(), {}, remembered), endpoint=endpoint)
