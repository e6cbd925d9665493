"""Application, network and gateway load balancers. Their listeners are deleted with them. Deletion protection blocks
the deletion, and is switched off first only if the settings allow it."""

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Item
from workers.providers.aws.reading.elb import ElbReader, Tags

NAME = "aws.balancer"
DELETE = "elbv2.DeleteLoadBalancer"
LIFT = "elbv2.ModifyLoadBalancerAttributes"
PROTECTION = "deletion_protection.enabled"
MAX_LIFTS = 2
"""How often the protection is switched off before an operator is asked: another controller may set it again."""

LAG_ROUNDS = 3
"""Rounds in which AWS may still report a protection that was switched off."""


def _parse(item: Item, tags: Tags) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["LoadBalancerArn"],
        tags=tags,
        vpc=item.get("VpcId") or "",
        made=item.get("CreatedTime"),
        state=(item.get("State") or {}).get("Code") or "",
        groups=tuple(item.get("SecurityGroups") or ()),
    )


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("elbv2", "delete_load_balancer", LoadBalancerArn=attempt.resource.id)


async def _protected(attempt: AwsAttempt, error: AwsError) -> Verdict:
    record, lifted = attempt.job.record, _lifted(attempt)
    if attempt.settings.lift_deletion_protection:
        if lifted and record.waits < LAG_ROUNDS and record.verdict != "refused":
            return Blocked(
                f"its deletion protection was lifted, and AWS still says: {error.message}",
                until=aligned_delay(attempt.settings.check_after, 0.5),
            )
        # After a refusal it is retried at the interval of refused jobs.
        if lifted < MAX_LIFTS or record.verdict == "refused":
            return attempt.move_to(
                LIFT, f"its deletion protection is to be lifted: {error.message}", resume=attempt.resume
            )
        return Refused(
            f"{attempt.resource.id} has deletion protection again, although it was lifted {lifted} times: find out "
            f"who sets {PROTECTION} there; AWS says: {error.message}"
        )
    return Refused(
        f"{attempt.resource.id} has deletion protection: switch {PROTECTION} off there, or let Knell do it (setting "
        f"aws.lift_deletion_protection); AWS says: {error.message}"
    )


async def _lift(attempt: AwsAttempt) -> Verdict:
    if not attempt.settings.lift_deletion_protection:
        return attempt.move_to(DELETE, "its deletion protection is not to be lifted any more")
    await attempt.clear()
    off = [{"Key": PROTECTION, "Value": "false"}]
    await attempt.client.call(
        "elbv2", "modify_load_balancer_attributes", LoadBalancerArn=attempt.resource.id, Attributes=off
    )
    return attempt.move_to(
        DELETE, "its deletion protection is lifted", resume=str(min(_lifted(attempt) + 1, MAX_LIFTS))
    )


def _lifted(attempt: AwsAttempt) -> int:
    """How often so far, from the previous attempts."""
    return int(attempt.resume) if attempt.resume.isdecimal() else 0


_READER = ElbReader(
    service="elbv2", operation="describe_load_balancers", key="LoadBalancers", ids="LoadBalancerArns",
    id="LoadBalancerArn", tag_ids="ResourceArns", tag_id="ResourceArn", parse=_parse,
)  # fmt: skip

LOAD_BALANCER = AwsKind(
    name=NAME,
    service="elbv2",
    delete_operation=DELETE,
    check_operation="elbv2.DescribeLoadBalancers",
    arn=("elasticloadbalancing", "loadbalancer"),
    id_pattern=r"(?:app|net|gwy)/[^/]+/[^/]+",
    id_is_arn=True,
    read=_READER.read,
    read_operations=("elbv2.DescribeLoadBalancers", "elbv2.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    lists_whole_region=True,
    delete=_delete,
    on_protected=_protected,
    steps={LIFT: KindStep(run=_lift, setting="lift_deletion_protection")},
)
