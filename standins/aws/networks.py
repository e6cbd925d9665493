"""What a builder of worlds makes with EC2: networks, groups and their rules, machines and volumes.
Each answer is the id of what was made."""

from collections.abc import Sequence
from typing import Any

import msgspec

from standins.aws.tags import Tags, named, pairs


class Vpc(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    subnets: tuple[str, ...]


class Networks:
    """Mixed into `world.World`, which has the client and the region."""

    ec2: Any
    region: str

    async def vpc(self, tags: Tags | None = None) -> Vpc:
        """With a subnet in each of two zones."""
        made = await self.ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=_specified("vpc", tags))
        vpc = made["Vpc"]["VpcId"]
        subnets = [
            await self.ec2.create_subnet(
                VpcId=vpc, CidrBlock=f"10.0.{number * 64}.0/18", AvailabilityZone=f"{self.region}{zone}"
            )
            for number, zone in enumerate("ab")
        ]
        return Vpc(id=vpc, subnets=tuple(one["Subnet"]["SubnetId"] for one in subnets))

    async def group(self, vpc: Vpc, tags: Tags | None = None, *, name: str = "") -> str:
        made = await self.ec2.create_security_group(
            GroupName=name or named("k8s-elb"),
            Description="made for a balancer",
            VpcId=vpc.id,
            TagSpecifications=_specified("security-group", tags),
        )
        return str(made["GroupId"])

    async def rule(
        self, on: str, of: str, *, egress: bool = False, port: int = 443, words: str = "", tags: Tags | None = None
    ) -> str:
        """A rule of group `on` that speaks of group `of`; the answer is the rule's id."""
        allow = self.ec2.authorize_security_group_egress if egress else self.ec2.authorize_security_group_ingress
        pair = {"GroupId": of, **({"Description": words} if words else {})}
        permission = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "UserIdGroupPairs": [pair]}
        specified = _specified("security-group-rule", tags)
        made = await allow(GroupId=on, IpPermissions=[permission], TagSpecifications=specified)
        return str(made["SecurityGroupRules"][-1]["SecurityGroupRuleId"])

    async def interface(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        made = await self.ec2.create_network_interface(
            SubnetId=vpc.subnets[0], Groups=list(groups), TagSpecifications=_specified("network-interface", tags)
        )
        return str(made["NetworkInterface"]["NetworkInterfaceId"])

    async def elastic_ip(self, tags: Tags | None = None) -> str:
        made = await self.ec2.allocate_address(Domain="vpc", TagSpecifications=_specified("elastic-ip", tags))
        return str(made["AllocationId"])

    async def nat_gateway(self, vpc: Vpc, elastic_ip: str, tags: Tags | None = None) -> str:
        made = await self.ec2.create_nat_gateway(
            SubnetId=vpc.subnets[0], AllocationId=elastic_ip, TagSpecifications=_specified("natgateway", tags)
        )
        return str(made["NatGateway"]["NatGatewayId"])

    async def endpoint(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        made = await self.ec2.create_vpc_endpoint(
            VpcId=vpc.id,
            ServiceName=f"com.amazonaws.{self.region}.sts",
            VpcEndpointType="Interface",
            SubnetIds=[vpc.subnets[0]],
            SecurityGroupIds=list(groups),
            TagSpecifications=_specified("vpc-endpoint", tags),
        )
        return str(made["VpcEndpoint"]["VpcEndpointId"])

    async def instance(self, vpc: Vpc, groups: Sequence[str] = (), tags: Tags | None = None) -> str:
        made = await self.ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            SubnetId=vpc.subnets[0],
            SecurityGroupIds=list(groups),
            TagSpecifications=_specified("instance", tags),
        )
        return str(made["Instances"][0]["InstanceId"])

    async def volume(self, tags: Tags | None = None, *, instance: str = "") -> str:
        """Attached, if an instance is named."""
        made = await self.ec2.create_volume(
            Size=1, AvailabilityZone=f"{self.region}a", TagSpecifications=_specified("volume", tags)
        )
        volume = str(made["VolumeId"])
        if instance:
            await self.ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdh")
        return volume


def _specified(kind: str, tags: Tags | None) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": pairs(tags)}] if tags else []
