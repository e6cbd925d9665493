"""Describe calls of ELB and ELBv2: pages that survive deletions, and a failure if one name is missing.
moto's markers name resources that may be gone, its DescribeTags has no limit, and it ignores what it did not find."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import elb_of, elbv2_of
from standins.aws.responses import AwsResponse, failed, succeeded

_MOST_TAGGED: Final = 20
_MOST_NAMED: Final = 20
_LARGEST_PAGE: Final = 400


class _Missing(Exception):
    pass


def balancers(call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
    elbv2 = elbv2_of(call)
    arns, names = call.many("LoadBalancerArns"), call.many("Names")
    if len(arns) > _MOST_NAMED or len(names) > _MOST_NAMED:
        return failed(call, "ValidationError", f"Up to '{_MOST_NAMED}' load balancers can be described")
    for one in elbv2.load_balancers.values():
        one.activate()
    try:
        chosen = _chosen(elbv2.load_balancers, arns, names)
    except _Missing as missing:
        return failed(call, "LoadBalancerNotFound", f"Load balancers '{missing}' not found")
    return _page(call, behaviour, chosen, "LoadBalancers", _balancer)


def target_groups(call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
    elbv2 = elbv2_of(call)
    arns, names, balancer = call.many("TargetGroupArns"), call.many("Names"), call.text("LoadBalancerArn")
    if balancer and balancer not in elbv2.load_balancers:
        return failed(call, "LoadBalancerNotFound", f"Load balancer '{balancer}' not found")
    try:
        chosen = _chosen(elbv2.target_groups, arns, names)
    except _Missing:
        return failed(call, "TargetGroupNotFound", "One or more target groups not found")
    chosen = [one for one in chosen if not balancer or balancer in one.load_balancer_arns]
    return _page(call, behaviour, chosen, "TargetGroups", _target_group)


def classic_balancers(call: AwsCall, behaviour: AwsBehaviour) -> AwsResponse:
    names = call.many("LoadBalancerNames")
    try:
        chosen = _chosen(elb_of(call).load_balancers, names, [])
    except _Missing as missing:
        return failed(call, "LoadBalancerNotFound", f"There is no ACTIVE Load Balancer named '{missing}'")
    return _page(call, behaviour, chosen, "LoadBalancerDescriptions", _classic)


def tags(call: AwsCall) -> AwsResponse:
    elbv2, arns = elbv2_of(call), call.many("ResourceArns")
    if len(arns) > _MOST_TAGGED:
        return failed(call, "ValidationError", f"Cannot have more than {_MOST_TAGGED} resources described")
    for arn in arns:
        if ":targetgroup/" in arn and arn not in elbv2.target_groups:
            return failed(call, "TargetGroupNotFound", f"Target groups '{arn}' not found")
        if ":loadbalancer/" in arn and arn not in elbv2.load_balancers:
            return failed(call, "LoadBalancerNotFound", f"Load balancers '{arn}' not found")
    known = elbv2.tagging_service.get_tag_dict_for_resource
    return succeeded(call, {"TagDescriptions": [{"ResourceArn": arn, "Tags": _pairs(known(arn))} for arn in arns]})


def classic_tags(call: AwsCall) -> AwsResponse:
    known, names = elb_of(call).load_balancers, call.many("LoadBalancerNames")
    if len(names) > _MOST_TAGGED:
        return failed(call, "ValidationError", f"Cannot have more than {_MOST_TAGGED} load balancers described")
    for name in names:
        if name not in known:
            return failed(call, "LoadBalancerNotFound", f"There is no ACTIVE Load Balancer named '{name}'")
    described = [{"LoadBalancerName": name, "Tags": _pairs(known[name].tags)} for name in names]
    return succeeded(call, {"TagDescriptions": described})


def retagged(call: AwsCall) -> AwsResponse | None:
    """AddTags and RemoveTags of load balancers and target groups: a missing name fails the call before anything is
    changed; moto would stop halfway. None leaves the request to moto."""
    if call.action == "RemoveTags" and not call.many("TagKeys"):
        return failed(call, "ValidationError", "1 validation error detected: TagKeys must not be empty")
    answer = tags(call)
    return answer if answer.status != 200 else None


def classic_retagged(call: AwsCall) -> AwsResponse | None:
    names = call.many("LoadBalancerNames")
    if len(names) != 1:
        return failed(call, "ValidationError", "LoadBalancerNames must have one name")
    answer = classic_tags(call)
    return answer if answer.status != 200 else None


def _chosen(known: dict[str, Any], keys: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Ordered by key, which a deletion between two pages does not change."""
    for key in keys:
        if key not in known:
            raise _Missing(key)
    by_name = {one.name: one for one in known.values()} if names else {}
    for name in names:
        if name not in by_name:
            raise _Missing(name)
    if keys:
        return [known[key] for key in sorted(set(keys))]
    return [by_name[name] for name in names] if names else [known[key] for key in sorted(known)]


def _page(
    call: AwsCall, behaviour: AwsBehaviour, chosen: list[Any], name: str, shown: Callable[[Any], dict[str, Any]]
) -> AwsResponse:
    """The marker is the last key of the page, so it stays valid when that resource is deleted."""
    wanted, marker = call.number("PageSize"), call.text("Marker")
    if wanted is not None and not 1 <= wanted <= _LARGEST_PAGE:
        return failed(call, "ValidationError", f"Page size must be between 1 and {_LARGEST_PAGE}")
    size = min(wanted or _LARGEST_PAGE, behaviour.page_size)
    left = [one for one in chosen if not marker or _key(one) > marker]
    page = left[:size]
    result: dict[str, Any] = {name: [shown(one) for one in page]}
    if len(left) > size:
        result["NextMarker"] = _key(page[-1])
    return succeeded(call, result)


def _key(one: Any) -> str:
    return str(getattr(one, "arn", "") or one.name)


def _pairs(known: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in known.items()]


def _balancer(one: Any) -> dict[str, Any]:
    return {
        "LoadBalancerArn": one.arn,
        "DNSName": one.dns_name,
        "CanonicalHostedZoneId": one.canonical_hosted_zone_id,
        "CreatedTime": one.created_time,
        "LoadBalancerName": one.name,
        "Scheme": one.scheme or "internet-facing",
        "VpcId": one.vpc_id,
        "State": {"Code": one.state},
        "Type": one.type,
        "AvailabilityZones": [{"ZoneName": each.availability_zone, "SubnetId": each.id} for each in one.subnets],
        "SecurityGroups": list(one.security_groups or []),
        "IpAddressType": one.ip_address_type,
    }


def _target_group(one: Any) -> dict[str, Any]:
    return {
        "TargetGroupArn": one.arn,
        "TargetGroupName": one.name,
        "Protocol": one.protocol,
        "Port": one.port,
        "VpcId": one.vpc_id,
        "HealthCheckProtocol": one.health_check_protocol,
        "HealthCheckPort": one.health_check_port,
        "HealthCheckEnabled": bool(one.health_check_enabled),
        "LoadBalancerArns": sorted(set(one.load_balancer_arns)),
        "TargetType": one.target_type,
        "IpAddressType": one.ip_address_type,
    }


def _classic(one: Any) -> dict[str, Any]:
    return {
        "LoadBalancerName": one.name,
        "DNSName": one.dns_name,
        "CanonicalHostedZoneName": one.dns_name,
        "AvailabilityZones": list(one.availability_zones or []),
        "Subnets": list(one.subnets),
        "VPCId": one.vpc_id,
        "Instances": [{"InstanceId": each} for each in one.instance_ids],
        "SecurityGroups": list(one.security_groups),
        "CreatedTime": one.created_time.isoformat(),
        "Scheme": one.scheme,
    }
