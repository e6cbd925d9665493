"""Application, network and gateway load balancers. Their listeners go with them; deletion protection stands against
it, and is lifted first only where the settings allow it."""

from service.contract import Blocked, Refused, Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.model import Calls, Found, Kind, Step, Turn
from workers.handlers.aws.reading.ec2 import Item
from workers.handlers.aws.reading.elb import ElbReader, Tags
from workers.handlers.aws.rounds import until_round

NAME = "aws.balancer"
DELETE = "elbv2.DeleteLoadBalancer"
LIFT = "elbv2.ModifyLoadBalancerAttributes"
PROTECTION = "deletion_protection.enabled"
LIFTS = 2
"""How often the protection is lifted before a person is asked: somebody may be setting it again."""

CATCHING_UP = 3
"""Rounds in which a protection that was lifted is taken for one that AWS has not let go of yet."""


def _form(item: Item, tags: Tags) -> Found:
    return Found(
        kind=NAME,
        id=item["LoadBalancerArn"],
        tags=tags,
        vpc=item.get("VpcId") or "",
        made=item.get("CreatedTime"),
        state=(item.get("State") or {}).get("Code") or "",
        groups=tuple(item.get("SecurityGroups") or ()),
    )


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("elbv2", "delete_load_balancer", LoadBalancerArn=found.id)


async def _protected(turn: Turn, error: AwsError) -> Verdict:
    record, lifted = turn.job.record, _lifted(turn)
    if turn.settings.lift_deletion_protection:
        if lifted and record.waits < CATCHING_UP and record.verdict != "refused":
            return Blocked(
                f"its deletion protection was lifted, and AWS still says: {error.message}",
                until=until_round(turn.settings.check_after, 0.5),
            )
        # After a refusal it is tried again, as seldom as refusals are looked at.
        if lifted < LIFTS or record.verdict == "refused":
            return turn.hop(LIFT, f"its deletion protection is to be lifted: {error.message}", resume=turn.resume)
        return Refused(
            f"{turn.found.id} has deletion protection again, although it was lifted {lifted} times: find out who sets "
            f"{PROTECTION} there; AWS says: {error.message}"
        )
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
    return turn.hop(DELETE, "its deletion protection is lifted", resume=str(min(_lifted(turn) + 1, LIFTS)))


def _lifted(turn: Turn) -> int:
    """How often, as the turns before left it."""
    return int(turn.resume) if turn.resume.isdecimal() else 0


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
