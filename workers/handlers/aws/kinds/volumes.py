"""EBS volumes, by the task that a person has to choose. Where a snapshot comes first, `snapshots` sees to it."""

from service.contract import Blocked, Verdict
from workers.handlers.aws.model import Calls, Found, Kind, Step, Turn
from workers.handlers.aws.reading.ec2 import Ec2Reader, Item, tags_of
from workers.handlers.aws.snapshots import CREATE, DESCRIBE, make, of_volumes, saved, wait, wanted

NAME = "aws.volume"


def _form(item: Item) -> Found:
    return Found(
        kind=NAME,
        id=item["VolumeId"],
        tags=tags_of(item),
        state=item.get("State") or "",
        made=item.get("CreateTime"),
        facts=tuple(one["InstanceId"] for one in item.get("Attachments") or () if one.get("InstanceId")),
    )


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("ec2", "delete_volume", VolumeId=found.id)


async def _before(turn: Turn) -> Verdict | None:
    if turn.found.state == "in-use":
        return Blocked(f"attached to instance {', '.join(turn.found.facts) or 'unknown'}")
    return await saved(turn) if wanted(turn) else None


_READER = Ec2Reader("describe_volumes", "Volumes", "volume-id", _form)

VOLUME = Kind(
    name=NAME,
    task="volume",
    service="ec2",
    chain="volumes",
    stage=0,
    operation="ec2.DeleteVolume",
    checking="ec2.DescribeVolumes",
    arn=("ec2", "volume"),
    read=_READER.read,
    reads=("ec2.DescribeVolumes",),
    list_all=_READER.list_all,
    in_vpc=False,
    limits={"ec2.DeleteVolume": (100, 5)},
    delete=_delete,
    going=frozenset({"deleting"}),
    absent=frozenset({"deleted"}),
    look=of_volumes,
    looks=(DESCRIBE,),
    before=_before,
    steps={
        CREATE: Step(act=make, look=of_volumes, reads=(DESCRIBE,), only="snapshot_first"),
        DESCRIBE: Step(act=wait, look=of_volumes, judged=False),
    },
)
