"""Dependency checks of deletions, with AWS's error codes.
moto deletes most of them regardless; each check returns the error, or None to allow the deletion."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from standins.aws.balancer_interfaces import BalancerInterface, hidden_interfaces
from standins.aws.buckets import has_uploads
from standins.aws.calls import AwsCall
from standins.aws.iam_and_kms import key_scheduled, policy_in_use
from standins.aws.moto_backends import ec2_of, elb_of, elbv2_of
from standins.aws.responses import AwsResponse, failed


def security_group(call: AwsCall) -> AwsResponse | None:
    ec2, group = ec2_of(call), call.text("GroupId")
    found = next((groups[group] for groups in ec2.groups.values() if group in groups), None)
    if found is None:
        return failed(call, "InvalidGroup.NotFound", f"The security group '{group}' does not exist")
    if found.is_default:
        return failed(call, "CannotDelete", "the specified group: cannot be deleted by a user")
    if any(True for _ in _users_of(call, group)):
        return failed(call, "DependencyViolation", f"resource {group} has a dependent object")
    return None


def _users_of(call: AwsCall, group: str) -> Iterator[str]:
    """Network interfaces, endpoints and load balancers in the group, and other groups with rules that name it."""
    ec2 = ec2_of(call)
    for interface in _interfaces(ec2):
        if any(one.id == group for one in interface.group_set):
            yield interface.id
    for endpoint in ec2.vpc_end_points.values():
        if group in endpoint.security_group_ids:
            yield endpoint.id
    for balancer in (*elb_of(call).load_balancers.values(), *elbv2_of(call).load_balancers.values()):
        if group in balancer.security_groups:
            yield balancer.name
    for groups in ec2.groups.values():
        for other in groups.values():
            rules = (*other.ingress_rules, *other.egress_rules)
            if other.id != group and any(rule.source_group.get("GroupId") == group for rule in rules):
                yield other.id


def _interfaces(ec2: Any) -> Iterator[Any]:
    """All network interfaces, without those that moto keeps of terminated instances."""
    for one in (*ec2.enis.values(), *hidden_interfaces(ec2).values()):
        if one.instance is None or one.instance._state.name != "terminated":
            yield one


def network_interface(call: AwsCall) -> AwsResponse | None:
    ec2, name = ec2_of(call), call.text("NetworkInterfaceId")
    one = ec2.enis.get(name)
    theirs = {gateway._eni.id for gateway in ec2.nat_gateways.values()}
    theirs.update(each for endpoint in ec2.vpc_end_points.values() for each in endpoint.network_interface_ids)
    if one is not None and (isinstance(one, BalancerInterface) or one.attachment_id or name in theirs):
        return failed(call, "InvalidParameterValue", f"Network interface '{name}' is currently in use.")
    return None


def elastic_ip(call: AwsCall) -> AwsResponse | None:
    name = call.text("AllocationId")
    one = next((each for each in ec2_of(call).addresses if each.allocation_id == name), None)
    if one is not None and (one.association_id or one.eni or one.instance):
        return failed(call, "InvalidIPAddress.InUse", f"Address {one.public_ip} is in use.")
    return None


def subnet(call: AwsCall) -> AwsResponse | None:
    name = call.text("SubnetId")
    if any(one.subnet.id == name for one in _interfaces(ec2_of(call))):
        return failed(call, "DependencyViolation", f"The subnet '{name}' has dependencies and cannot be deleted.")
    return None


def vpc(call: AwsCall) -> AwsResponse | None:
    ec2, name = ec2_of(call), call.text("VpcId")
    groups = [one for one in ec2.groups.get(name, {}).values() if not one.is_default]
    if groups or any(one.subnet.vpc_id == name for one in _interfaces(ec2)):
        return failed(call, "DependencyViolation", f"The vpc '{name}' has dependencies and cannot be deleted.")
    return None


CHECKS: Final[dict[str, Callable[[AwsCall], AwsResponse | None]]] = {
    "ec2.DeleteSecurityGroup": security_group,
    "ec2.DeleteNetworkInterface": network_interface,
    "ec2.ReleaseAddress": elastic_ip,
    "ec2.DeleteSubnet": subnet,
    "ec2.DeleteVpc": vpc,
    "iam.DeletePolicy": policy_in_use,
    "kms.ScheduleKeyDeletion": key_scheduled,
    "s3.DeleteBucket": has_uploads,
}
