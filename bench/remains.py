"""What deleted clusters leave in an AWS account: balancers, target groups and security groups, tagged as theirs.

Every cluster has a VPC and a name of its own, which no other turn has used.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.account import Account
from bench.contenders.protocol import Drains
from bench.objects import each
from standins.aws.tags import by_cloud_provider
from standins.aws.world import World

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
class Left:
    """By one cluster. Balancers and target groups are named by ARN, classic balancers by name, groups by id."""

    cluster: str
    vpc: str
    groups: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Remains:
    by: tuple[Left, ...]

    @property
    def vpcs(self) -> dict[str, str]:
        return {one.cluster: one.vpc for one in self.by}

    @property
    def groups(self) -> list[str]:
        return [group for one in self.by for group in one.groups]

    @property
    def ids(self) -> list[str]:
        return [*self.groups, *(other for one in self.by for other in one.others)]

    def __add__(self, other: Remains) -> Remains:
        return Remains((*self.by, *other.by))


def fill(account: Account, clusters: int) -> Remains:
    """Ten resources of each cluster."""

    async def leave(world: World, name: str) -> Left:
        made = await world.cluster_resources(name)
        return Left(name, made.vpc.id, made.groups, (*made.classic, *made.balancers, *made.target_groups))

    return _made(account, "all", clusters, leave)


def fill_draining(account: Account, drains: Drains) -> Remains:
    """A balancer of each cluster, with groups on interfaces that outlive it."""

    async def leave(world: World, name: str) -> Left:
        vpc = await world.vpc()
        groups = [await world.group(vpc, by_cloud_provider(name)) for _ in range(GROUPS_OF_A_BALANCER)]
        balancer = await world.balancer(vpc, by_cloud_provider(name, "default/web"), groups=groups, name=name)
        return Left(name, vpc.id, tuple(groups), (balancer,))

    remains = _made(account, "drain", drains.clusters, leave)
    step = (drains.longest - drains.shortest) / (drains.clusters - 1)
    seconds = {one.cluster: drains.shortest + place * step for place, one in enumerate(remains.by)}
    account.let_drain(seconds, unseen=drains.unseen)
    return remains


def entangle(account: Account, clusters: int) -> Remains:
    """Two groups of each cluster, of which each has a rule that lets the other in."""

    async def leave(world: World, name: str) -> Left:
        vpc = await world.vpc()
        first, second = [await world.group(vpc, by_cloud_provider(name)) for _ in range(2)]
        await world.rule(first, second)
        await world.rule(second, first)
        return Left(name, vpc.id, (first, second))

    return _made(account, "knot", clusters, leave)


def _made(account: Account, called: str, clusters: int, leave: Callable[[World, str], Awaitable[Left]]) -> Remains:
    turn = uuid.uuid4().hex[:6]

    async def made() -> Remains:
        found: dict[str, Left] = {}

        async def one(name: str) -> None:
            found[name] = await leave(world, name)

        names = [f"{called}-{turn}-{number:03}" for number in range(clusters)]
        async with World(account.address, account=account.number, region=account.region) as world:
            await each(names, one, _MADE_AT_ONCE)
        return Remains(tuple(found[name] for name in names))

    return asyncio.run(made())
