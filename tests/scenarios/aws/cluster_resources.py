"""Resources in an AWS account before a scenario: those that controllers of a cluster created, and foreign ones.
The foreign ones look as similar as they can."""

import asyncio

import msgspec

from service.sources.capa import OWNED, ownership_tag
from standins.aws.builder import AwsBuilder, Vpc
from standins.aws.tags import by_cloud_provider, by_cluster_api

SERVICE = "default/web"


class ClusterResources(msgspec.Struct, frozen=True, kw_only=True):
    """`ids` is all of it, `groups` the security groups among them."""

    ids: frozenset[str]
    groups: tuple[str, ...]
    balancers: tuple[str, ...]


async def one_of_each(builder: AwsBuilder, name: str, vpc: Vpc) -> ClusterResources:
    """A balancer of every type with its target groups, and four security groups that refer to each other."""
    owned, served = by_cloud_provider(name), by_cloud_provider(name, SERVICE)
    groups = await asyncio.gather(*(builder.group(vpc, owned) for _ in range(4)))
    for on, of in zip(groups, [*groups[1:], groups[0]], strict=True):
        await builder.rule(on, of)
        await builder.rule(on, of, egress=True, port=8443)
    classic, app, net, gwy = await asyncio.gather(
        builder.classic(vpc, served, groups=groups[:1]),
        builder.balancer(vpc, served, groups=groups[1:2]),
        builder.balancer(vpc, served, of="net", groups=groups[2:3]),
        builder.balancer(vpc, served, of="gwy"),
    )
    behind = ((app, 80), (app, 443), (net, 80), (net, 81), (gwy, 80))
    targets = [await builder.target_group(vpc, served, behind=one, port=port) for one, port in behind]
    return ClusterResources(
        ids=frozenset((classic, app, net, gwy, *targets, *groups)), groups=tuple(groups),
        balancers=(classic, app, net, gwy),
    )  # fmt: skip


async def a_few(builder: AwsBuilder, name: str, vpc: Vpc) -> ClusterResources:
    """A classic balancer, a network balancer with its target group, and the group that both are in."""
    served = by_cloud_provider(name, SERVICE)
    group = await builder.group(vpc, by_cloud_provider(name))
    classic, net = await asyncio.gather(
        builder.classic(vpc, served, groups=[group]), builder.balancer(vpc, served, of="net", groups=[group])
    )
    target = await builder.target_group(vpc, served, behind=net)
    return ClusterResources(ids=frozenset((classic, net, target, group)), groups=(group,), balancers=(classic, net))


async def bystanders(builder: AwsBuilder, name: str, vpc: Vpc) -> None:
    """What only looks like the cluster's: another cluster's, Cluster API's own, a user's, and what has its tag and no
    Service, in its VPC and out of it."""
    elsewhere = await builder.vpc()
    longer = f"{name}-2"
    await asyncio.gather(
        a_few(builder, longer, vpc),
        a_few(builder, f"not-{name}", elsewhere),
        # Another cluster of the same name, in its own VPC.
        builder.group(elsewhere, by_cloud_provider(name)),
        builder.target_group(elsewhere, by_cloud_provider(name, SERVICE)),
        # Made by Cluster API for the API server.
        builder.classic(vpc, by_cluster_api(name), name=f"{name}-apiserver"),
        builder.balancer(vpc, by_cluster_api(name), of="net", name=f"{name}-apiserver-nlb"),
        builder.group(vpc, by_cluster_api(name), name=f"{name}-node"),
        # A user's.
        builder.group(vpc, name=f"k8s-elb-{name}"),
        builder.group(vpc, {ownership_tag(name): "shared"}, name=f"k8s-elb-a{name}"),
        builder.group(vpc, {ownership_tag(longer): OWNED}, name=f"k8s-elb-{longer}"),
        builder.group(vpc, {"Name": ownership_tag(name), "owner": OWNED}, name=f"{name}-db"),
        builder.balancer(vpc, {ownership_tag(name): OWNED}, name=f"{name}-by-hand"),
        builder.target_group(vpc, {ownership_tag(name): OWNED}, name=f"{name}-by-hand"),
        builder.volume(by_cloud_provider(name)),
    )
