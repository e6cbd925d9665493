"""Target groups. They go after the balancers, whose listeners use them; `listeners` says what is done where one still
does."""

from workers.handlers.aws.kinds.listeners import DELETE_LISTENER, READS, in_use, unblock
from workers.handlers.aws.model import Calls, Found, Kind, Step
from workers.handlers.aws.reading.ec2 import Item
from workers.handlers.aws.reading.elb import ElbReader, Tags

NAME = "aws.target-group"


def _form(item: Item, tags: Tags) -> Found:
    return Found(
        kind=NAME,
        id=item["TargetGroupArn"],
        tags=tags,
        vpc=item.get("VpcId") or "",
        facts=tuple(item.get("LoadBalancerArns") or ()),
    )


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("elbv2", "delete_target_group", TargetGroupArn=found.id)


_READER = ElbReader(
    service="elbv2", operation="describe_target_groups", key="TargetGroups", ids="TargetGroupArns",
    id="TargetGroupArn", tag_ids="ResourceArns", tag_id="ResourceArn", form=_form,
)  # fmt: skip

TARGET_GROUP = Kind(
    name=NAME,
    task="target-group",
    service="elbv2",
    chain="network",
    stage=1,
    operation="elbv2.DeleteTargetGroup",
    checking="elbv2.DescribeTargetGroups",
    arn=("elasticloadbalancing", "targetgroup"),
    shape=r"[^/]+/[^/]+",
    by_arn=True,
    read=_READER.read,
    reads=("elbv2.DescribeTargetGroups", "elbv2.DescribeTags"),
    exists=_READER.exists,
    list_all=_READER.list_all,
    whole=True,
    delete=_delete,
    of_service=True,
    of_lbc=True,
    blocked=in_use,
    steps={DELETE_LISTENER: Step(act=unblock, reads=READS)},
)
