"""Making and deleting load balancers and target groups: ARNs of every type, interfaces, protection, use by listeners.
moto makes all balancers `app/`, gives them no interface and deletes protected ones."""

import random
import re

from standins.aws.answers import Answer, failed, succeeded
from standins.aws.behaviour import Behaviour
from standins.aws.calls import Call
from standins.aws.interfaces import Interfaces
from standins.aws.moto_side import Refusals, ec2_of, elb_of, elbv2_of

_ARN = re.compile(rb"<LoadBalancerArn>([^<]+)</LoadBalancerArn>")
_TYPES = {"network": "net", "gateway": "gwy"}


def made(call: Call, answer: Answer, interfaces: Interfaces) -> Answer:
    """Called with moto's answer to CreateLoadBalancer: gives the balancer its right ARN, and its interfaces."""
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
    return Answer(answer.status, answer.body.replace(before.encode(), after.encode()), answer.headers)


def made_classic(call: Call, answer: Answer, interfaces: Interfaces) -> Answer:
    one = elb_of(call).load_balancers.get(call.text("LoadBalancerName"))
    if answer.status != 200 or one is None:
        return answer
    subnets = [ec2_of(call).get_subnet(name) for name in one.subnets]
    interfaces.attach(call, one.name, subnets, list(one.security_groups))
    # moto gives a name the same address each time; by it AWS's users tell a balancer from its namesake of before.
    before, one.dns_name = one.dns_name, f"{one.name}-{random.randrange(10**10)}.{call.region}.elb.amazonaws.com"
    return Answer(answer.status, answer.body.replace(before.encode(), one.dns_name.encode()), answer.headers)


def regrouped(call: Call, answer: Answer, interfaces: Interfaces) -> Answer:
    if answer.status == 200:
        balancer = call.text("LoadBalancerArn") or call.text("LoadBalancerName")
        interfaces.regroup(call, balancer, call.many("SecurityGroups"))
    return answer


def delete(call: Call, interfaces: Interfaces, behaviour: Behaviour) -> Answer:
    """One that is not there is deleted with success, as AWS does it."""
    elbv2, arn = elbv2_of(call), call.text("LoadBalancerArn")
    one = elbv2.load_balancers.get(arn)
    if one is None:
        return succeeded(call)
    if str(one.attrs.get("deletion_protection.enabled")).lower() == "true":
        words = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        return failed(call, "OperationNotPermitted", words)
    for group in elbv2.target_groups.values():
        group.load_balancer_arns = [each for each in group.load_balancer_arns if each != arn]
    del elbv2.load_balancers[arn]
    interfaces.drain(call, arn, behaviour.drains.get(one.name, behaviour.drain), unseen=behaviour.drains_unseen)
    return succeeded(call)


def delete_classic(call: Call, interfaces: Interfaces, behaviour: Behaviour) -> Answer:
    name = call.text("LoadBalancerName")
    if elb_of(call).load_balancers.pop(name, None) is not None:
        interfaces.drain(call, name, behaviour.drains.get(name, behaviour.drain), unseen=behaviour.drains_unseen)
    return succeeded(call)


def delete_target_group(call: Call) -> Answer:
    """In use while any listener or rule forwards to it."""
    arn = call.text("TargetGroupArn")
    try:
        elbv2_of(call).delete_target_group(arn)
    except Refusals as error:
        code = str(getattr(error, "code", "") or "ResourceInUse")
        return failed(call, code, str(getattr(error, "message", error)))
    return succeeded(call)


def delete_listener(call: Call, answer: Answer) -> Answer:
    """Called with moto's answer: a target group no longer belongs to a balancer whose last listener for it went."""
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
