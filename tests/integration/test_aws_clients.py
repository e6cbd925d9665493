"""AWS clients: one request per call, whatever the response, and complete lists. A response that AWS did not write never
counts as an empty one."""

from datetime import timedelta
from typing import Any

import pytest

from standins.aws import AwsFault, StrayTagMapping
from tests.canned_server import CLOSE, canned_server
from tests.integration.aws_identities import OWN, REGION, AwsIdentityFixture
from tests.integration.aws_removal import no_sources
from workers.providers.aws.client.clients import SdkClient, SdkClients
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import CallScope

TAG = {"kubernetes.io/cluster/c": "owned"}


@pytest.fixture
async def client(identities: AwsIdentityFixture) -> SdkClient:
    return await identities.reach.client(identities.whose())


async def fault(client: SdkClient, service: str, operation: str, **arguments: Any) -> AwsError:
    with pytest.raises(AwsError) as failed:
        await client.call(service, operation, **arguments)
    return failed.value


# ---- responses


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
    identities: AwsIdentityFixture, client: SdkClient, service: str, operation: str, code: str, action: str
) -> None:
    await identities.aws.set_faults(AwsFault(what="deny"))
    denied = await fault(client, service, operation)
    assert (denied.what, denied.code, denied.action) == ("denied", code, action)


@pytest.mark.parametrize("service", ["ec2", "elb", "elbv2", "resourcegroupstaggingapi"])
async def test_a_throttled_call_is_made_once_and_no_more(
    identities: AwsIdentityFixture, client: SdkClient, service: str
) -> None:
    await identities.aws.set_faults(AwsFault(what="throttle"))
    operation = {"ec2": "describe_vpcs", "resourcegroupstaggingapi": "get_resources"}.get(
        service, "describe_load_balancers"
    )
    before = len(await identities.asked())
    assert (await fault(client, service, operation)).what == "throttled"
    assert len(await identities.asked()) == before + 1


async def test_something_that_is_not_there_is_gone(client: SdkClient) -> None:
    assert (await fault(client, "ec2", "delete_security_group", GroupId="sg-0123456789abcdef0")).what == "gone"
    missing = f"arn:aws:elasticloadbalancing:{REGION}:{OWN}:targetgroup/none/0123456789abcdef"
    assert (await fault(client, "elbv2", "describe_target_groups", TargetGroupArns=[missing])).what == "gone"
    assert (await fault(client, "elb", "describe_load_balancers", LoadBalancerNames=["none"])).what == "gone"
    assert (await fault(client, "eks", "describe_cluster", name="none")).what == "gone"


@pytest.mark.parametrize("service", ["ec2", "elb", "resourcegroupstaggingapi"])
async def test_a_proxy_s_page_is_unreadable(identities: AwsIdentityFixture, client: SdkClient, service: str) -> None:
    await identities.aws.set_faults(AwsFault(what="html", status=500))
    operation = {"ec2": "describe_vpcs", "elb": "describe_load_balancers"}.get(service, "get_resources")
    assert (await fault(client, service, operation)).what == "unreadable"


@pytest.mark.parametrize("what", ["close", "lost"])
async def test_a_connection_that_ends_says_nothing_and_is_not_tried_again(
    identities: AwsIdentityFixture, client: SdkClient, what: Any
) -> None:
    await identities.aws.set_faults(AwsFault(what=what, action="ec2.*"))
    assert (await fault(client, "ec2", "describe_vpcs")).what == "unreachable"
    assert len(await identities.asked("ec2.DescribeVpcs")) == 1


async def test_a_service_that_is_in_trouble_says_nothing(identities: AwsIdentityFixture, client: SdkClient) -> None:
    await identities.aws.set_faults(AwsFault(what="error", code="InternalError", status=500))
    assert (await fault(client, "ec2", "describe_vpcs")).what == "unreachable"


def answer(body: bytes, kind: bytes = b"text/html") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


@pytest.mark.parametrize("service", ["ec2", "elb", "elbv2", "resourcegroupstaggingapi", "eks"])
@pytest.mark.parametrize("page", [b"<html><body><p>Sign in</p></body></html>", b"{}", b""])
async def test_a_page_with_status_200_is_not_an_empty_answer(service: str, page: bytes) -> None:
    operation = {"ec2": "describe_vpcs", "eks": "list_clusters", "resourcegroupstaggingapi": "get_resources"}.get(
        service, "describe_load_balancers"
    )
    async with canned_server([[answer(page)]]) as (_, port), SdkSessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(AwsCredentials("AKIA1", "s"), REGION, service, operation, {})
    assert failed.value.what == "unreadable"


async def test_an_answer_that_breaks_off_says_nothing() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<DescribeVpcsResponse>|" + CLOSE
    async with canned_server([[half]]) as (_, port), SdkSessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(AwsCredentials("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert failed.value.what == "unreachable"


async def test_an_answer_that_never_ends_is_given_up() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<DescribeVpcsResponse>"
    async with (
        canned_server([[half]]) as (_, port),
        SdkSessions(f"http://127.0.0.1:{port}", timeout=timedelta(seconds=3)) as sessions,
    ):
        with pytest.raises(AwsError) as failed:
            await sessions.call(AwsCredentials("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert (failed.value.what, failed.value.code) == ("unreachable", "NoAnswerInTime")


async def test_an_unreachable_address_proves_nothing() -> None:
    async with canned_server([]) as (_, port):
        pass
    async with SdkSessions(f"http://127.0.0.1:{port}") as sessions:
        with pytest.raises(AwsError) as failed:
            await sessions.call(AwsCredentials("AKIA1", "s"), REGION, "ec2", "describe_vpcs", {})
    assert failed.value.what == "unreachable"


# ---- lists


async def tagged(client: SdkClient) -> list[str]:
    filters = [{"Key": key, "Values": [value]} for key, value in TAG.items()]
    pages = client.pages(
        "resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters, ResourcesPerPage=100
    )
    return [found["ResourceARN"] async for page in pages for found in page]


async def test_a_list_goes_on_over_short_and_empty_pages_to_its_end(
    identities: AwsIdentityFixture, client: SdkClient
) -> None:
    arns = [f"arn:aws:ec2:{REGION}:{OWN}:security-group/sg-{number:017x}" for number in range(450)]
    await identities.aws.behave(
        strays=[StrayTagMapping(arn=arn, tags=TAG, account=OWN) for arn in arns], uneven_pages=True
    )
    assert sorted(await tagged(client)) == sorted(arns)
    assert len(await identities.asked("tagging.GetResources")) > 5


async def test_a_list_that_loses_its_place_fails_as_a_whole(identities: AwsIdentityFixture, client: SdkClient) -> None:
    arns = [f"arn:aws:ec2:{REGION}:{OWN}:security-group/sg-{number:017x}" for number in range(250)]
    await identities.aws.behave(strays=[StrayTagMapping(arn=arn, tags=TAG, account=OWN) for arn in arns])
    pages = client.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", ResourcesPerPage=100)
    assert await anext(pages)
    await identities.aws.set_faults(AwsFault(what="error", code="PaginationTokenExpiredException", status=400))
    with pytest.raises(AwsError, match="PaginationTokenExpiredException"):
        await anext(pages)


async def test_pages_that_go_in_a_circle_are_no_list() -> None:
    body = b'{"PaginationToken":"again","ResourceTagMappingList":[]}'
    head = b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    async with canned_server([[head] * 3]) as (_, port), lone_reach(f"http://127.0.0.1:{port}") as reach:
        client = SdkClient(reach, WHOSE, AwsCredentials("AKIA1", "s"), OWN, float("inf"))
        with pytest.raises(AwsError, match="comes back to a page"):
            await tagged(client)


async def test_an_answer_without_its_list_is_no_empty_list() -> None:
    head = b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 1\r\nContent-Length: 2\r\n\r\n{}"
    async with canned_server([[head]]) as (_, port), lone_reach(f"http://127.0.0.1:{port}") as reach:
        client = SdkClient(reach, WHOSE, AwsCredentials("AKIA1", "s"), OWN, float("inf"))
        with pytest.raises(AwsError, match="no empty list") as raised:
            await tagged(client)
        assert raised.value.what == "unreadable"


WHOSE = CallScope(source="s", namespace="n", region=REGION)


def lone_reach(endpoint: str) -> SdkClients:
    return SdkClients(AwsLimits(KINDS), no_sources, endpoint=endpoint)
