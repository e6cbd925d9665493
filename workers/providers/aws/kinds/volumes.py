"""EBS volumes, which may hold data: `snapshots` takes a snapshot first, if one is wanted."""

from service.contract import Blocked, Verdict
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, KindStep
from workers.providers.aws.kinds.snapshots import (
    CREATE,
    DESCRIBE,
    create_snapshot,
    find_snapshots,
    is_wanted,
    require_snapshot,
    wait_for_snapshot,
)
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.volume"


def _parse(item: Item) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["VolumeId"],
        tags=tags_of(item),
        state=item.get("State") or "",
        made=item.get("CreateTime"),
        facts=tuple(one["InstanceId"] for one in item.get("Attachments") or () if one.get("InstanceId")),
    )


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "delete_volume", VolumeId=attempt.resource.id)


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    if attempt.resource.state == "in-use":
        return Blocked(f"attached to instance {', '.join(attempt.resource.facts) or 'unknown'}")
    return await require_snapshot(attempt) if is_wanted(attempt) else None


_READER = Ec2Reader("describe_volumes", "Volumes", "volume-id", _parse)

VOLUME = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.DeleteVolume",
    check_operation="ec2.DescribeVolumes",
    arn=("ec2", "volume"),
    read=_READER.read,
    read_operations=("ec2.DescribeVolumes",),
    list_all=_READER.list_all,
    in_vpc=False,
    limits={"ec2.DeleteVolume": (100, 5)},
    delete=_delete,
    deleting_states=frozenset({"deleting"}),
    absent_states=frozenset({"deleted"}),
    lookup=find_snapshots,
    lookup_operations=(DESCRIBE,),
    precheck=_precheck,
    steps={
        CREATE: KindStep(
            run=create_snapshot, lookup=find_snapshots, read_operations=(DESCRIBE,), setting="snapshot_first"
        ),
        DESCRIBE: KindStep(run=wait_for_snapshot, lookup=find_snapshots, checks_ownership=False),
    },
)
