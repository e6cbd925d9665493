"""Builds worlds in the stand-in for AWS over its real interface, for tests, demo and figures.
Its requests are marked as a builder's: not throttled, not troubled and not counted."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from functools import cache
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from standins.aws.calls import SETUP
from standins.aws.networks import Networks, Vpc
from standins.aws.process import LocalAwsFailed
from standins.aws.tags import by_cloud_provider
from standins.aws.traffic import Traffic

ACCOUNT: Final = "111122223333"
REGION: Final = "eu-west-1"


@cache
def session() -> Any:
    """The models of the services take long to read, and are kept by the session that read them. What the caller has
    set up for the real AWS is not for this one: a profile that is not there would be an error."""
    unset = (None, None, None, None)
    nothing = (None, None, os.devnull, None)
    return get_session({"profile": unset, "config_file": nothing, "credentials_file": nothing})


def credentials(account: str = ACCOUNT) -> dict[str, str]:
    """Keyword arguments for a client that acts in an account."""
    return {"aws_access_key_id": f"AKIA{account}", "aws_secret_access_key": "any"}


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """A stand-in that is not there any more is said to be so, in place of what the SDK makes of it."""
    try:
        yield
    except (BotoCoreError, ClientError, aiohttp.ClientError) as error:
        raise LocalAwsFailed(f"the stand-in for AWS does not answer: {error}") from None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What the controllers in one tenant cluster made: classic balancers by name, the others by ARN, groups by id."""

    name: str
    vpc: Vpc
    classic: tuple[str, ...]
    balancers: tuple[str, ...]
    target_groups: tuple[str, ...]
    groups: tuple[str, ...]


class World(Networks, Traffic):
    """One account and region. `async with World(aws.address) as world: ...`"""

    def __init__(self, address: str, *, account: str = ACCOUNT, region: str = REGION) -> None:
        self.address, self.account, self.region = address, account, region
        self._open = contextlib.AsyncExitStack()
        self.eks: Any = None

    async def __aenter__(self) -> Self:
        config = AioConfig(user_agent_extra=SETUP, retries={"total_max_attempts": 1}, max_pool_connections=32)
        for service in ("ec2", "elb", "elbv2", "eks"):
            client = session().create_client(
                service, region_name=self.region, endpoint_url=self.address, config=config, **credentials(self.account)
            )
            setattr(self, service, await self._open.enter_async_context(client))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def eks_cluster(self, name: str, vpc: Vpc) -> None:
        await self.eks.create_cluster(
            name=name,
            roleArn=f"arn:aws:iam::{self.account}:role/eks",
            resourcesVpcConfig={"subnetIds": list(vpc.subnets)},
        )

    async def cluster_resources(self, name: str, vpc: Vpc | None = None, *, entangled: bool = False) -> Cluster:
        """Ten of them: a classic balancer, an application and a network balancer, three target groups and four groups.
        `entangled`: each group has a rule that speaks of the next one, and the last one of the first."""
        vpc = vpc or await self.vpc()
        owned, served = by_cloud_provider(name), by_cloud_provider(name, "default/web")
        groups = await asyncio.gather(*(self.group(vpc, owned) for _ in range(4)))
        if entangled:
            for on, of in zip(groups, [*groups[1:], groups[0]], strict=True):
                await self.rule(on, of)
        classic, app, net = await asyncio.gather(
            self.classic(vpc, served, groups=groups[:1]),
            self.balancer(vpc, served, groups=groups[1:2]),
            self.balancer(vpc, served, of="net", groups=groups[2:3]),
        )
        behind = ((app, 80), (net, 80), (net, 81))
        target_groups = await asyncio.gather(
            *(self.target_group(vpc, served, behind=one, port=port) for one, port in behind)
        )
        return Cluster(
            name=name,
            vpc=vpc,
            classic=(classic,),
            balancers=(app, net),
            target_groups=tuple(target_groups),
            groups=tuple(groups),
        )

    async def standing(self) -> set[str]:
        """All classic balancers (names), balancers and target groups (ARNs), and groups that are no VPC's default."""
        classic = [page async for page in self.elb.get_paginator("describe_load_balancers").paginate()]
        balancers = [page async for page in self.elbv2.get_paginator("describe_load_balancers").paginate()]
        target_groups = [page async for page in self.elbv2.get_paginator("describe_target_groups").paginate()]
        groups = [page async for page in self.ec2.get_paginator("describe_security_groups").paginate()]
        return {
            *(one["LoadBalancerName"] for page in classic for one in page["LoadBalancerDescriptions"]),
            *(one["LoadBalancerArn"] for page in balancers for one in page["LoadBalancers"]),
            *(one["TargetGroupArn"] for page in target_groups for one in page["TargetGroups"]),
            *(one["GroupId"] for page in groups for one in page["SecurityGroups"] if one["GroupName"] != "default"),
        }
