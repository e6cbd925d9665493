"""GetResources of the tagging API: existing, recently deleted and stray resources of one region, in pages.
The first page fixes the list, so deletions in between neither end nor shorten it."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import ec2_of, elb_of, elbv2_of
from standins.aws.responses import AwsResponse, failed, succeeded_in_json
from standins.clock import Clock

_TOKEN_LIVES: Final = 900.0
_LARGEST_PAGE: Final = 100
_USUAL_PAGE: Final = 50
# Resource types in ARNs by the prefix of an id.
_EC2: Final = {
    "i": "instance",
    "igw": "internet-gateway",
    "nat": "natgateway",
    "eni": "network-interface",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
    "rtb": "route-table",
    "eipalloc": "elastic-ip",
}

# Of each deletion: the parameter with the ids, and the resource type in the ARN.
_EC2_DELETES: Final = {
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

TaggedArn = tuple[str, dict[str, str]]


@dataclass(slots=True)
class _Remaining:
    left: list[TaggedArn]
    pages: int
    until: float


class DeletedTags:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone: dict[tuple[str, str], dict[str, tuple[float, dict[str, str]]]] = {}

    def add(self, call: AwsCall, tagged: list[TaggedArn]) -> None:
        place = self._gone.setdefault((call.account, call.region), {})
        place.update({arn: (self._clock.now(), tags) for arn, tags in tagged})

    def shown(self, call: AwsCall, seconds: float) -> Iterator[TaggedArn]:
        """Resources deleted within the last `seconds`."""
        since = self._clock.now() - seconds
        for arn, (at, tags) in self._gone.get((call.account, call.region), {}).items():
            if at > since:
                yield arn, tags


class TaggingApi:
    def __init__(self, clock: Clock, deleted: DeletedTags) -> None:
        self._clock, self._deleted = clock, deleted
        self._remaining: dict[str, _Remaining] = {}
        # By account and region: when each ARN was first seen.
        self._since: dict[tuple[str, str], dict[str, float]] = {}

    def note(self, call: AwsCall, behaviour: AwsBehaviour) -> None:
        """Called before and after a request that creates resources: an ARN seen only afterwards is new. Does nothing
        unless new resources are listed late, since it goes through the whole region."""
        if behaviour.created_unlisted <= 0:
            self._since.clear()
            return
        place = call.account, call.region
        since = self._clock.now() if place in self._since else float("-inf")
        known = self._since.setdefault(place, {})
        for arn, _ in _existing(call):
            known.setdefault(arn, since)

    def get_resources(self, call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
        size = int(call.params.get("ResourcesPerPage") or _USUAL_PAGE)
        if not 1 <= size <= _LARGEST_PAGE:
            return failed(call, "InvalidParameterException", f"ResourcesPerPage must be 1 to {_LARGEST_PAGE}")
        now = self._clock.now()
        if token := call.text("PaginationToken"):
            rest = self._remaining.pop(token, None)
            if rest is None or rest.until < now:
                return failed(call, "PaginationTokenExpiredException", "The pagination token has expired")
        else:
            rest = _Remaining(self._list(call, behaviour), 0, 0.0)
        uneven = behaviour.uneven_pages and (rest.pages or len(rest.left) > size)
        # The second page of a long list is short and its third is empty; neither is the last.
        taken = {1: max(1, size // 2), 2: 0}.get(rest.pages, size) if uneven else size
        page, left = rest.left[:taken], rest.left[taken:]
        following = ""
        if left:
            following = str(uuid.uuid4())
            self._remaining[following] = _Remaining(left, rest.pages + 1, now + _TOKEN_LIVES)
        shown = [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            for arn, tags in page
        ]
        return succeeded_in_json({"PaginationToken": following, "ResourceTagMappingList": shown})

    def _list(self, call: AwsCall, behaviour: AwsBehaviour) -> list[TaggedArn]:
        found: dict[str, dict[str, str]] = dict(self._deleted.shown(call, behaviour.deleted_listed))
        hidden = self._new_arns(call, behaviour.created_unlisted)
        found |= {arn: tags for arn, tags in _existing(call) if arn not in hidden}
        found |= {one.arn: one.tags for one in behaviour.strays if one.account in ("", call.account)}
        wanted = call.params.get("TagFilters") or []
        types = call.params.get("ResourceTypeFilters") or []
        arns = call.params.get("ResourceARNList") or []
        return [
            (arn, tags)
            for arn, tags in sorted(found.items())
            if tags and _has_tags(tags, wanted) and _is_of_type(arn, types) and (not arns or arn in arns)
        ]

    def _new_arns(self, call: AwsCall, seconds: float) -> set[str]:
        """ARNs created within the last `seconds`."""
        known = self._since.get((call.account, call.region), {}) if seconds > 0 else {}
        return {arn for arn, at in known.items() if at > self._clock.now() - seconds}


def _existing(call: AwsCall) -> Iterator[TaggedArn]:
    ec2, elbv2 = ec2_of(call), elbv2_of(call)
    for one, tags in ec2.tags.items():
        kind = _EC2.get(one.rpartition("-")[0])
        if tags and kind is not None and _exists(ec2, kind, one):
            yield arn_of(call, "ec2", f"{kind}/{one}"), tags
    for balancer in elb_of(call).load_balancers.values():
        yield arn_of(call, "elasticloadbalancing", f"loadbalancer/{balancer.name}"), balancer.tags
    tags_of = elbv2.tagging_service.get_tag_dict_for_resource
    for arn, balancer in elbv2.load_balancers.items():
        yield arn, tags_of(arn)
        for listener in balancer.listeners:
            yield listener, tags_of(listener)
    for arn in elbv2.target_groups:
        yield arn, tags_of(arn)


def _exists(ec2: Any, kind: str, one: str) -> bool:
    """Whether a tagged resource still exists: moto keeps the tags of deleted ones."""
    match kind:
        case "security-group":
            return any(one in groups for groups in ec2.groups.values())
        case "security-group-rule":
            return any(group.get_rule(one) for groups in ec2.groups.values() for group in groups.values())
        case "subnet":
            return any(one in subnets for subnets in ec2.subnets.values())
        case "elastic-ip":
            return any(address.allocation_id == one for address in ec2.addresses)
        case "instance":
            return True
    held = {
        "internet-gateway": ec2.internet_gateways,
        "natgateway": ec2.nat_gateways,
        "network-interface": ec2.enis,
        "snapshot": ec2.snapshots,
        "volume": ec2.volumes,
        "vpc": ec2.vpcs,
        "vpc-endpoint": ec2.vpc_end_points,
        "route-table": ec2.route_tables,
    }
    return one in held[kind]


def _has_tags(tags: dict[str, str], wanted: list[dict[str, Any]]) -> bool:
    return all(one["Key"] in tags and (not one.get("Values") or tags[one["Key"]] in one["Values"]) for one in wanted)


def _is_of_type(arn: str, types: list[str]) -> bool:
    """Types are `ec2` or `ec2:security-group`."""
    service, resource = arn.split(":")[2], arn.split(":", 5)[-1].split("/")[0]
    return not types or service in types or f"{service}:{resource}" in types


def tags_before_delete(call: AwsCall) -> list[TaggedArn]:
    """ARNs and tags of the resources that a deletion names."""
    if call.service == "ec2" and (named := _EC2_DELETES.get(call.action)) is not None:
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


def arn_of(call: AwsCall, service: str, resource: str) -> str:
    return f"arn:{call.partition}:{service}:{call.region}:{call.account}:{resource}"
