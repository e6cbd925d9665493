"""Creation and deletion of load balancers and target groups: ARNs of every type, network interfaces, deletion
protection, use by listeners. moto gives every load balancer an `app/` ARN, no interface, and deletes protected ones."""

import random
import re

from standins.aws.balancer_interfaces import BalancerInterfaces
from standins.aws.behaviour import AwsBehaviour
from standins.aws.calls import AwsCall
from standins.aws.moto_backends import Refusals, ec2_of, elb_of, elbv2_of
from standins.aws.responses import AwsResponse, failed, succeeded

_ARN = re.compile(rb"<LoadBalancerArn>([^<]+)</LoadBalancerArn>")
_TYPES = {"network": "net", "gateway": "gwy"}


def made(call: AwsCall, answer: AwsResponse, interfaces: BalancerInterfaces) -> AwsResponse:
    """Called with moto's response to CreateLoadBalancer: corrects the ARN and attaches network interfaces."""
    named = _ARN.search(answer.body)
    if answer.status != 200 or named is None:
        return answer
    elbv2, before = elbv2_of(call), named.group(1).decode()
    one = elbv2.load_balancers[before]
    after = before.replace("/app/", f"/{_TYPES.get(one.type, 'app')}/", 1)
    if after != before:
        elbv2.load_balancers[after] = elbv2.load_balancers.pop(before)
        one.arn = after
        tags = elbv2.tagging_service.get_tag_dict_for_resource(before)
        elbv2.tagging_service.delete_all_tags_for_resource(before)
        elbv2.tagging_service.tag_resource(after, [{"Key": key, "Value": value} for key, value in tags.items()])
    interfaces.attach(call, after, one.subnets, list(one.security_groups or []), one.type)
    return AwsResponse(answer.status, answer.body.replace(before.encode(), after.encode()), answer.headers)


def made_classic(call: AwsCall, answer: AwsResponse, interfaces: BalancerInterfaces) -> AwsResponse:
    one = elb_of(call).load_balancers.get(call.text("LoadBalancerName"))
    if answer.status != 200 or one is None:
        return answer
    subnets = [ec2_of(call).get_subnet(name) for name in one.subnets]
    interfaces.attach(call, one.name, subnets, list(one.security_groups))
    # moto derives the DNS name from the name; at AWS it differs from that of a former load balancer of the same name.
    before, one.dns_name = one.dns_name, f"{one.name}-{random.randrange(10**10)}.{call.region}.elb.amazonaws.com"
    return AwsResponse(answer.status, answer.body.replace(before.encode(), one.dns_name.encode()), answer.headers)


def regrouped(call: AwsCall, answer: AwsResponse, interfaces: BalancerInterfaces) -> AwsResponse:
    if answer.status == 200:
        balancer = call.text("LoadBalancerArn") or call.text("LoadBalancerName")
        interfaces.regroup(call, balancer, call.many("SecurityGroups"))
    return answer


def delete(call: AwsCall, interfaces: BalancerInterfaces, behaviour: AwsBehaviour) -> AwsResponse:
    """Succeeds if there is no such load balancer, as AWS does."""
    elbv2, arn = elbv2_of(call), call.text("LoadBalancerArn")
    one = elbv2.load_balancers.get(arn)
    if one is None:
        return succeeded(call)
    if str(one.attrs.get("deletion_protection.enabled")).lower() == "true":
        message = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        return failed(call, "OperationNotPermitted", message)
    for group in elbv2.target_groups.values():
        group.load_balancer_arns = [each for each in group.load_balancer_arns if each != arn]
    del elbv2.load_balancers[arn]
    interfaces.drain(call, arn, behaviour.drains.get(one.name, behaviour.drain), unseen=behaviour.drains_unseen)
    return succeeded(call)


def delete_classic(call: AwsCall, interfaces: BalancerInterfaces, behaviour: AwsBehaviour) -> AwsResponse:
    name = call.text("LoadBalancerName")
    if elb_of(call).load_balancers.pop(name, None) is not None:
        interfaces.drain(call, name, behaviour.drains.get(name, behaviour.drain), unseen=behaviour.drains_unseen)
    return succeeded(call)


def delete_target_group(call: AwsCall) -> AwsResponse:
    """Refused while a listener or rule forwards to it."""
    arn = call.text("TargetGroupArn")
    try:
        elbv2_of(call).delete_target_group(arn)
    except Refusals as error:
        code = str(getattr(error, "code", "") or "ResourceInUse")
        return failed(call, code, str(getattr(error, "message", error)))
    return succeeded(call)


def delete_listener(call: AwsCall, answer: AwsResponse) -> AwsResponse:
    """Called with moto's response: detaches target groups from load balancers without a listener for them."""
    elbv2 = elbv2_of(call)
    for group in elbv2.target_groups.values():
        group.load_balancer_arns = [arn for arn in group.load_balancer_arns if _forwards(elbv2, arn, group.arn)]
    return answer


def _forwards(elbv2: object, balancer: str, group: str) -> bool:
    one = elbv2.load_balancers.get(balancer)  # type: ignore[attr-defined]
    return one is not None and any(
        group in elbv2._get_target_group_arns_from(action_data=action.data)  # type: ignore[attr-defined]
        for listener in one.listeners.values()
        for rule in listener.rules.values()
        for action in rule.actions
    )
