"""Builder of AWS resources in the stand-in, through its API, for tests, demo and benchmarks.
Its requests are marked: they are not throttled, get no faults and are not counted."""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp
import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from standins.aws.calls import SETUP
from standins.aws.process import LocalAwsFailed
from standins.aws.tags import Tags, by_cloud_provider, named, pairs

ACCOUNT: Final = "111122223333"
REGION: Final = "eu-west-1"


@cache
def session() -> Any:
    """A shared session, since loading the service models takes long. It ignores the caller's AWS configuration: a
    profile that does not exist would be an error."""
    unset = (None, None, None, None)
    nothing = (None, None, os.devnull, None)
    return get_session({"profile": unset, "config_file": nothing, "credentials_file": nothing})


def credentials(account: str = ACCOUNT) -> dict[str, str]:
    """Client arguments for an account."""
    return {"aws_access_key_id": f"AKIA{account}", "aws_secret_access_key": "any"}


@contextlib.contextmanager
def stand_in_errors() -> Iterator[None]:
    """Turns SDK errors into LocalAwsFailed: the stand-in does not answer."""
    try:
        yield
    except (BotoCoreError, ClientError, aiohttp.ClientError) as error:
        raise LocalAwsFailed(f"the stand-in for AWS does not answer: {error}") from None


class Vpc(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    subnets: tuple[str, ...]


class ClusterResources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of one workload cluster: classic load balancers by name, the others by ARN, groups by id."""

    name: str
    vpc: Vpc
    classic: tuple[str, ...]
    balancers: tuple[str, ...]
    target_groups: tuple[str, ...]
    groups: tuple[str, ...]


class AwsBuilder:
    """Creates resources in one account and region: `async with AwsBuilder(aws.address) as builder: ...`. Methods return
    the id of what they created: for ELB the ARN, for classic load balancers the name."""

    def __init__(self, address: str, *, account: str = ACCOUNT, region: str = REGION) -> None:
        self.address, self.account, self.region = address, account, region
        self._open = contextlib.AsyncExitStack()
        self.ec2: Any = None
        self.elb: Any = None
        self.elbv2: Any = None
        self.eks: Any = None
        self._clients: dict[str, Any] = {}

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

    async def client(self, service: str) -> Any:
        """For the services that most tests do without; opened when it is first asked for."""
        if service not in self._clients:
            config = AioConfig(user_agent_extra=SETUP, retries={"total_max_attempts": 1}, max_pool_connections=32)
            made = session().create_client(
                service, region_name=self.region, endpoint_url=self.address, config=config, **credentials(self.account)
            )
            self._clients[service] = await self._open.enter_async_context(made)
        return self._clients[service]

    # ---- EC2: networks, groups and their rules, machines and volumes

    async def vpc(self, tags: Tags | None = None) -> Vpc:
        """With one subnet in each of two zones."""
        created = await self.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=_specified("vpc", tags))
        vpc = created["Vpc"]["VpcId"]
        subnets = [
            await self.ec2.create_subnet(
                VpcId=vpc, CidrBlock=f"10.0.{number * 64}.0/18", AvailabilityZone=f"{self.region}{zone}"
            )
            for number, zone in enumerate("ab")
        ]
        return Vpc(id=vpc, subnets=tuple(one["Subnet"]["SubnetId"] for one in subnets))

    async def group(self, vpc: Vpc, tags: Tags | None = None, *, name: str = "") -> str:
        created = await self.ec2.create_security_group(
            GroupName=name or named("k8s-elb"),
            Description="made for a balancer",
            VpcId=vpc.id,
            TagSpecifications=_specified("security-group", tags),
        )
        return str(created["GroupId"])

    async def rule(
        self, on: str, of: str, *, egress: bool = False, port: int = 443, words: str = "", tags: Tags | None = None
    ) -> str:
        """A rule of group `on` that names group `of`."""
        allow = self.ec2.authorize_security_group_egress if egress else self.ec2.authorize_security_group_ingress
        pair = {"GroupId": of, **({"Description": words} if words else {})}
        permission = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "UserIdGroupPairs": [pair]}
        specified = _specified("security-group-rule", tags)
        created = await allow(GroupId=on, IpPermissions=[permission], TagSpecifications=specified)
        return str(created["SecurityGroupRules"][-1]["SecurityGroupRuleId"])

    async def interface(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        created = await self.ec2.create_network_interface(
            SubnetId=vpc.subnets[0], Groups=list(groups), TagSpecifications=_specified("network-interface", tags)
        )
        return str(created["NetworkInterface"]["NetworkInterfaceId"])

    async def elastic_ip(self, tags: Tags | None = None) -> str:
        created = await self.ec2.allocate_address(Domain="vpc", TagSpecifications=_specified("elastic-ip", tags))
        return str(created["AllocationId"])

    async def nat_gateway(self, vpc: Vpc, elastic_ip: str, tags: Tags | None = None) -> str:
        created = await self.ec2.create_nat_gateway(
            SubnetId=vpc.subnets[0], AllocationId=elastic_ip, TagSpecifications=_specified("natgateway", tags)
        )
        return str(created["NatGateway"]["NatGatewayId"])

    async def endpoint(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        created = await self.ec2.create_vpc_endpoint(
            VpcId=vpc.id,
            ServiceName=f"com.amazonaws.{self.region}.sts",
            VpcEndpointType="Interface",
            SubnetIds=[vpc.subnets[0]],
            SecurityGroupIds=list(groups),
            TagSpecifications=_specified("vpc-endpoint", tags),
        )
        return str(created["VpcEndpoint"]["VpcEndpointId"])

    async def instance(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        created = await self.ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            SubnetId=vpc.subnets[0],
            SecurityGroupIds=list(groups),
            TagSpecifications=_specified("instance", tags),
        )
        return str(created["Instances"][0]["InstanceId"])

    async def volume(self, tags: Tags | None = None, *, instance: str = "") -> str:
        """Attached, if an instance is named."""
        created = await self.ec2.create_volume(
            Size=1, AvailabilityZone=f"{self.region}a", TagSpecifications=_specified("volume", tags)
        )
        volume = str(created["VolumeId"])
        if instance:
            await self.ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdh")
        return volume

    # ---- ELB: load balancers, target groups and listeners

    async def classic(self, vpc: Vpc, tags: Tags | None = None, *, groups: Sequence[str] = (), name: str = "") -> str:
        name = name or named("classic")
        listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 30080}
        given = {"Tags": pairs(tags)} if tags else {}
        await self.elb.create_load_balancer(
            LoadBalancerName=name,
            Listeners=[listener],
            Subnets=list(vpc.subnets),
            SecurityGroups=list(groups),
            **given,
        )
        return name

    async def balancer(
        self,
        vpc: Vpc,
        tags: Tags | None = None,
        *,
        of: Literal["app", "net", "gwy"] = "app",
        groups: Sequence[str] = (),
        name: str = "",
    ) -> str:
        given = {"Tags": pairs(tags)} if tags else {}
        created = await self.elbv2.create_load_balancer(
            Name=name or named(of),
            Type={"app": "application", "net": "network", "gwy": "gateway"}[of],
            Subnets=list(vpc.subnets),
            SecurityGroups=list(groups),
            **given,
        )
        return str(created["LoadBalancers"][0]["LoadBalancerArn"])

    async def protect(self, balancer: str, *, protected: bool = True) -> None:
        attribute = {"Key": "deletion_protection.enabled", "Value": "true" if protected else "false"}
        await self.elbv2.modify_load_balancer_attributes(LoadBalancerArn=balancer, Attributes=[attribute])

    async def target_group(
        self, vpc: Vpc, tags: Tags | None = None, *, behind: str = "", port: int = 80, name: str = ""
    ) -> str:
        """With `behind`, a listener of that load balancer forwards to it on that port."""
        protocol = _protocol(behind)
        given = {"Tags": pairs(tags)} if tags else {}
        created = await self.elbv2.create_target_group(
            Name=name or named("tg"),
            Protocol=protocol,
            Port=6081 if protocol == "GENEVE" else port,
            VpcId=vpc.id,
            **given,
        )
        arn = str(created["TargetGroups"][0]["TargetGroupArn"])
        if behind:
            await self.listener(behind, arn, port=port)
        return arn

    async def listener(self, balancer: str, target_group: str, *, port: int = 80) -> str:
        protocol = _protocol(balancer)
        # Listeners of a gateway load balancer have no protocol or port.
        given = {} if protocol == "GENEVE" else {"Protocol": protocol, "Port": port}
        forward = {"Type": "forward", "TargetGroupArn": target_group}
        created = await self.elbv2.create_listener(LoadBalancerArn=balancer, DefaultActions=[forward], **given)
        return str(created["Listeners"][0]["ListenerArn"])

    # ---- clusters

    async def eks_cluster(self, name: str, vpc: Vpc) -> None:
        await self.eks.create_cluster(
            name=name,
            roleArn=f"arn:aws:iam::{self.account}:role/eks",
            resourcesVpcConfig={"subnetIds": list(vpc.subnets)},
        )

    async def cluster_resources(
        self, name: str, vpc: Vpc | None = None, *, entangled: bool = False
    ) -> ClusterResources:
        """Ten resources: a classic, an application and a network load balancer, three target groups and four security
        groups. `entangled`: each group has a rule that names the next one, and the last one the first."""
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
        return ClusterResources(
            name=name,
            vpc=vpc,
            classic=(classic,),
            balancers=(app, net),
            target_groups=tuple(target_groups),
            groups=tuple(groups),
        )

    async def standing(self) -> set[str]:
        """Names of classic load balancers, ARNs of the others and of target groups, ids of groups but defaults."""
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


def _specified(kind: str, tags: Tags | None) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": pairs(tags)}] if tags else []


def _protocol(balancer: str) -> str:
    """Protocol of the load balancer with that ARN; HTTP without one."""
    return "TCP" if "/net/" in balancer else "GENEVE" if "/gwy/" in balancer else "HTTP"
