"""Leftovers of deleted clusters in an AWS account: load balancers, target groups and security groups with their tags.

Every cluster has a VPC and a name of its own, which no other turn has used."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.aws_account import BenchAccount
from bench.contenders.protocol import Drains
from bench.objects import each
from standins.aws.builder import AwsBuilder
from standins.aws.tags import by_cloud_provider

OF_A_CLUSTER: Final[Mapping[str, int]] = {
    "elb.DeleteLoadBalancer": 1,
    "elbv2.DeleteLoadBalancer": 2,
    "elbv2.DeleteTargetGroup": 3,
    "ec2.DeleteSecurityGroup": 4,
}
"""How often each action is needed for one that left all kinds of things."""
GROUPS_OF_A_BALANCER: Final = 2
_MADE_AT_ONCE: Final = 8


@dataclass(frozen=True)
class ClusterLeftovers:
    """By one cluster. Balancers and target groups are named by ARN, classic balancers by name, groups by id."""

    cluster: str
    vpc: str
    groups: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class AccountLeftovers:
    by: tuple[ClusterLeftovers, ...]

    @property
    def vpcs(self) -> dict[str, str]:
        return {one.cluster: one.vpc for one in self.by}

    @property
    def groups(self) -> list[str]:
        return [group for one in self.by for group in one.groups]

    @property
    def ids(self) -> list[str]:
        return [*self.groups, *(other for one in self.by for other in one.others)]

    def __add__(self, other: AccountLeftovers) -> AccountLeftovers:
        return AccountLeftovers((*self.by, *other.by))


def fill(account: BenchAccount, clusters: int) -> AccountLeftovers:
    """Ten resources of each cluster."""

    async def leave(builder: AwsBuilder, name: str) -> ClusterLeftovers:
        made = await builder.cluster_resources(name)
        return ClusterLeftovers(name, made.vpc.id, made.groups, (*made.classic, *made.balancers, *made.target_groups))

    return _made(account, "all", clusters, leave)


def fill_draining(account: BenchAccount, drains: Drains) -> AccountLeftovers:
    """A balancer of each cluster, with groups on interfaces that outlive it."""

    async def leave(builder: AwsBuilder, name: str) -> ClusterLeftovers:
        vpc = await builder.vpc()
        groups = [await builder.group(vpc, by_cloud_provider(name)) for _ in range(GROUPS_OF_A_BALANCER)]
        balancer = await builder.balancer(vpc, by_cloud_provider(name, "default/web"), groups=groups, name=name)
        return ClusterLeftovers(name, vpc.id, tuple(groups), (balancer,))

    remains = _made(account, "drain", drains.clusters, leave)
    step = (drains.longest - drains.shortest) / (drains.clusters - 1)
    seconds = {one.cluster: drains.shortest + place * step for place, one in enumerate(remains.by)}
    account.let_drain(seconds, unseen=drains.unseen)
    return remains


def entangle(account: BenchAccount, clusters: int) -> AccountLeftovers:
    """Two groups of each cluster, of which each has a rule that lets the other in."""

    async def leave(builder: AwsBuilder, name: str) -> ClusterLeftovers:
        vpc = await builder.vpc()
        first, second = [await builder.group(vpc, by_cloud_provider(name)) for _ in range(2)]
        await builder.rule(first, second)
        await builder.rule(second, first)
        return ClusterLeftovers(name, vpc.id, (first, second))

    return _made(account, "knot", clusters, leave)


def _made(
    account: BenchAccount, called: str, clusters: int, leave: Callable[[AwsBuilder, str], Awaitable[ClusterLeftovers]]
) -> AccountLeftovers:
    turn = uuid.uuid4().hex[:6]

    async def made() -> AccountLeftovers:
        found: dict[str, ClusterLeftovers] = {}

        async def one(name: str) -> None:
            found[name] = await leave(builder, name)

        names = [f"{called}-{turn}-{number:03}" for number in range(clusters)]
        async with AwsBuilder(account.address, account=account.number, region=account.region) as builder:
            await each(names, one, _MADE_AT_ONCE)
        return AccountLeftovers(tuple(found[name] for name in names))

    return asyncio.run(made())
