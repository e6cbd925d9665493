"""What the tagging API still lists after it was deleted.
Before a deletion the tags of what it names are taken down; after it, what is gone haunts the lists for a while."""

from collections.abc import Iterator
from typing import Any, Final

from standins.aws.calls import Call
from standins.aws.moto_side import ec2_of, elb_of, elbv2_of
from standins.clock import Clock

# Of each deletion: the parameter that names what goes, and its place in an ARN.
_EC2: Final = {
    "DeleteSecurityGroup": ("GroupId", "security-group"),
    "DeleteNetworkInterface": ("NetworkInterfaceId", "network-interface"),
    "DeleteVolume": ("VolumeId", "volume"),
    "DeleteSnapshot": ("SnapshotId", "snapshot"),
    "DeleteNatGateway": ("NatGatewayId", "natgateway"),
    "DeleteVpcEndpoints": ("VpcEndpointId", "vpc-endpoint"),
    "ReleaseAddress": ("AllocationId", "elastic-ip"),
    "DeleteSubnet": ("SubnetId", "subnet"),
    "DeleteVpc": ("VpcId", "vpc"),
}

Tagged = tuple[str, dict[str, str]]


class Ghosts:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone: dict[tuple[str, str], dict[str, tuple[float, dict[str, str]]]] = {}

    def add(self, call: Call, tagged: list[Tagged]) -> None:
        place = self._gone.setdefault((call.account, call.region), {})
        place.update({arn: (self._clock.now(), tags) for arn, tags in tagged})

    def shown(self, call: Call, seconds: float) -> Iterator[Tagged]:
        """Those that went within so many seconds."""
        since = self._clock.now() - seconds
        for arn, (at, tags) in self._gone.get((call.account, call.region), {}).items():
            if at > since:
                yield arn, tags


def about_to_go(call: Call) -> list[Tagged]:
    """The ARNs and tags of what a deletion names."""
    if call.service == "ec2" and (named := _EC2.get(call.action)) is not None:
        tags = ec2_of(call).tags
        ids = [one for one in (call.text(named[0]), *call.many(named[0])) if one]
        return [(arn_of(call, "ec2", f"{named[1]}/{one}"), dict(tags[one])) for one in ids if tags.get(one)]
    if call.name == "elb.DeleteLoadBalancer":
        one = elb_of(call).load_balancers.get(call.text("LoadBalancerName"))
        return [(arn_of(call, "elasticloadbalancing", f"loadbalancer/{one.name}"), dict(one.tags))] if one else []
    if call.name in ("elbv2.DeleteLoadBalancer", "elbv2.DeleteTargetGroup"):
        known: Any = elbv2_of(call)
        arn = call.text("LoadBalancerArn") or call.text("TargetGroupArn")
        if arn in known.load_balancers or arn in known.target_groups:
            return [(arn, dict(known.tagging_service.get_tag_dict_for_resource(arn)))]
    return []


def arn_of(call: Call, service: str, resource: str) -> str:
    return f"arn:{call.partition}:{service}:{call.region}:{call.account}:{resource}"
