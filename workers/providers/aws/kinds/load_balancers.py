"""Application, network and gateway load balancers. Their listeners are deleted with them. Deletion protection blocks
the deletion, and is switched off first only if the settings allow it."""

from service.contract import Verdict
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.kinds.deletion_protection import DeletionProtection
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Item
from workers.providers.aws.reading.elb import ElbReader, Tags

NAME = "aws.balancer"
DELETE = "elbv2.DeleteLoadBalancer"
LIFT = "elbv2.ModifyLoadBalancerAttributes"
PROTECTION = "deletion_protection.enabled"


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
    return _PROTECTION.verdict(attempt, error.message)


async def _switch_off(attempt: AwsAttempt) -> None:
    off = [{"Key": PROTECTION, "Value": "false"}]
    await attempt.client.call(
        "elbv2", "modify_load_balancer_attributes", LoadBalancerArn=attempt.resource.id, Attributes=off
    )


_PROTECTION = DeletionProtection(LIFT, DELETE, PROTECTION, _switch_off)

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
    steps={LIFT: _PROTECTION.step},
)
