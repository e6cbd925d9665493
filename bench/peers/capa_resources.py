"""Resources of a cluster in an account, found as the collector of Cluster API Provider AWS does: by tag, or by lists.

Both ways read anew for each cluster and each pass, and cache nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from bench.order import AwsOrder
from bench.peers.go_retries import GoRetries

TAGS_AT_ONCE: Final = 20
SERVICES: Final = ("resourcegroupstaggingapi", "elb", "elbv2", "ec2")

Tags = Mapping[str, str]


@dataclass(frozen=True)
class TaggedResource:
    """`service` and `path` are parts of its ARN."""

    arn: str
    tags: Tags

    @property
    def service(self) -> str:
        return self.arn.split(":", 5)[2]

    @property
    def path(self) -> str:
        return self.arn.split(":", 5)[5]


class AwsClients:
    """The clients of one account and region; every call goes through the SDK's retries."""

    def __init__(self, clients: Mapping[str, Any], retries: GoRetries) -> None:
        self._clients, self._retries = clients, retries

    async def call(self, service: str, operation: str, **arguments: Any) -> Any:
        method = getattr(self._clients[service], operation)
        return await self._retries.of(lambda: method(**arguments))

    async def pages(
        self, service: str, operation: str, tokens: tuple[str, str], **arguments: Any
    ) -> AsyncIterator[Any]:
        """`tokens` are the names under which the answer gives the next page's token, and the next call takes it."""
        given, taken = tokens
        page = await self.call(service, operation, **arguments)
        yield page
        while more := page.get(given):
            page = await self.call(service, operation, **arguments, **{taken: more})
            yield page


@asynccontextmanager
async def account_of(order: AwsOrder) -> AsyncIterator[AwsClients]:
    session = get_session()
    config = AioConfig(retries={"total_max_attempts": 1}, max_pool_connections=50)
    async with AsyncExitStack() as stack:
        clients = {
            service: await stack.enter_async_context(
                session.create_client(
                    service, region_name=order.region, endpoint_url=order.address, config=config
                )
            )
            for service in SERVICES
        }  # fmt: skip
        yield AwsClients(clients, GoRetries(order.scale))


async def tagged(account: AwsClients, owned: str) -> list[TaggedResource]:
    wanted = [{"Key": owned, "Values": ["owned"]}]
    pages = account.pages(
        "resourcegroupstaggingapi", "get_resources", ("PaginationToken", "PaginationToken"), TagFilters=wanted
    )
    return [
        TaggedResource(found["ResourceARN"], _tags(found["Tags"]))
        async for page in pages
        for found in page["ResourceTagMappingList"]
    ]


async def described(account: AwsClients, owned: str) -> list[TaggedResource]:
    """Without the tagging API: all balancers and target groups of the account, for each cluster anew."""
    tokens = ("NextMarker", "Marker")
    classic = [
        balancer["LoadBalancerName"]
        async for page in account.pages("elb", "describe_load_balancers", tokens)
        for balancer in page["LoadBalancerDescriptions"]
    ]
    found = [
        TaggedResource(f"arn:aws:elasticloadbalancing:::loadbalancer/{one['LoadBalancerName']}", _tags(one["Tags"]))
        for chunk in _chunks(classic)
        for one in (await account.call("elb", "describe_tags", LoadBalancerNames=chunk))["TagDescriptions"]
    ]
    balancers = [
        balancer["LoadBalancerArn"]
        async for page in account.pages("elbv2", "describe_load_balancers", tokens)
        for balancer in page["LoadBalancers"]
    ]
    found += await _with_tags(account, balancers)
    # Only the first page of them: what is beyond it stays behind.
    groups = await account.call("elbv2", "describe_target_groups")
    found += await _with_tags(account, [group["TargetGroupArn"] for group in groups["TargetGroups"]])
    filters = [{"Name": f"tag:{owned}", "Values": ["owned"]}]
    async for page in account.pages("ec2", "describe_security_groups", ("NextToken", "NextToken"), Filters=filters):
        found += [
            TaggedResource(f"arn:aws:ec2:::security-group/{group['GroupId']}", _tags(group["Tags"]))
            for group in page["SecurityGroups"]
        ]
    return [resource for resource in found if resource.tags.get(owned) == "owned"]


async def _with_tags(account: AwsClients, arns: list[str]) -> list[TaggedResource]:
    return [
        TaggedResource(one["ResourceArn"], _tags(one["Tags"]))
        for chunk in _chunks(arns)
        for one in (await account.call("elbv2", "describe_tags", ResourceArns=chunk))["TagDescriptions"]
    ]


def _chunks(names: list[str]) -> Iterable[list[str]]:
    return (names[first : first + TAGS_AT_ONCE] for first in range(0, len(names), TAGS_AT_ONCE))


def _tags(pairs: Iterable[Mapping[str, str]]) -> Tags:
    return {pair["Key"]: pair.get("Value", "") for pair in pairs}
