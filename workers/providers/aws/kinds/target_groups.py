"""Target groups, deleted after the load balancers whose listeners use them. `listeners` handles one that is still in
use."""

from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.kinds.listeners import DELETE_LISTENER, READS, delete_listener, wait_for_balancer
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Item
from workers.providers.aws.reading.elb import ElbReader, Tags

NAME = "aws.target-group"


def _parse(item: Item, tags: Tags) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["TargetGroupArn"],
        tags=tags,
        vpc=item.get("VpcId") or "",
        facts=tuple(item.get("LoadBalancerArns") or ()),
    )


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("elbv2", "delete_target_group", TargetGroupArn=attempt.resource.id)


_READER = ElbReader(
    service="elbv2", operation="describe_target_groups", key="TargetGroups", ids="TargetGroupArns",
    id="TargetGroupArn", tag_ids="ResourceArns", tag_id="ResourceArn", parse=_parse,
)  # fmt: skip

TARGET_GROUP = AwsKind(
    name=NAME,
    service="elbv2",
    delete_operation="elbv2.DeleteTargetGroup",
    check_operation="elbv2.DescribeTargetGroups",
    arn=("elasticloadbalancing", "targetgroup"),
    id_pattern=r"[^/]+/[^/]+",
    id_is_arn=True,
    read=_READER.read,
    read_operations=("elbv2.DescribeTargetGroups", "elbv2.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    lists_whole_region=True,
    delete=_delete,
    on_dependency=wait_for_balancer,
    steps={DELETE_LISTENER: KindStep(run=delete_listener, read_operations=READS)},
)
