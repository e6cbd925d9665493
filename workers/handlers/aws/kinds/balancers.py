"""Application, network and gateway load balancers. Their listeners go with them; deletion protection stands against
it, and is lifted first only where the settings allow it."""

from service.contract import Refused, Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Found, Kind, Step, Turn
from workers.handlers.aws.reading.ec2 import Item
from workers.handlers.aws.reading.elb import ElbReader, Tags

NAME = "aws.balancer"
DELETE = "elbv2.DeleteLoadBalancer"
LIFT = "elbv2.ModifyLoadBalancerAttributes"
PROTECTION = "deletion_protection.enabled"
LIFTED = "lifted"
"""What a turn that lifted the protection leaves: refused once more, the next one does not lift it again."""


def _form(item: Item, tags: Tags) -> Found:
    state = (item.get("State") or {}).get("Code") or ""
    return Found(kind=NAME, id=item["LoadBalancerArn"], tags=tags, vpc=item.get("VpcId") or "", state=state)


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("elbv2", "delete_load_balancer", LoadBalancerArn=found.id)


async def _protected(turn: Turn, error: AwsError) -> Verdict:
    if turn.settings.lift_deletion_protection and turn.resume != LIFTED:
        return turn.hop(LIFT, f"its deletion protection is to be lifted: {error.message}")
    return Refused(
        f"{turn.found.id} has deletion protection: switch {PROTECTION} off there, or let Knell do it (setting "
        f"aws.lift_deletion_protection); AWS says: {error.message}"
    )


async def _lift(turn: Turn) -> Verdict:
    if not turn.settings.lift_deletion_protection:
        return turn.hop(DELETE, "its deletion protection is not to be lifted any more")
    await turn.clear()
    off = [{"Key": PROTECTION, "Value": "false"}]
    await turn.calls.call("elbv2", "modify_load_balancer_attributes", LoadBalancerArn=turn.found.id, Attributes=off)
    return turn.hop(DELETE, "its deletion protection is lifted", resume=LIFTED)


_READER = ElbReader(
    service="elbv2", operation="describe_load_balancers", key="LoadBalancers", ids="LoadBalancerArns",
    id="LoadBalancerArn", tag_ids="ResourceArns", tag_id="ResourceArn", form=_form,
)  # fmt: skip

BALANCER = Kind(
    name=NAME,
    task="load-balancer",
    service="elbv2",
    chain="network",
    stage=0,
    operation=DELETE,
    checking="elbv2.DescribeLoadBalancers",
    arn=("elasticloadbalancing", "loadbalancer"),
    shape=r"(?:app|net|gwy)/[^/]+/[^/]+",
    by_arn=True,
    read=_READER.read,
    reads=("elbv2.DescribeLoadBalancers", "elbv2.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    whole=True,
    delete=_delete,
    of_service=True,
    of_lbc=True,
    protected=_protected,
    steps={LIFT: Step(act=_lift, only="lift_deletion_protection")},
)
