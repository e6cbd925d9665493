"""Elastic IPs, released only while nothing is reached by them. They have no VPC, and not every server's tagging API
knows them."""

from service.contract import Blocked, Verdict
from workers.handlers.aws.model import Calls, Found, Kind, Turn
from workers.handlers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.elastic-ip"


def _form(item: Item) -> Found:
    users = (
        f"instance {item['InstanceId']}" if item.get("InstanceId") else "",
        f"network interface {item['NetworkInterfaceId']}" if item.get("NetworkInterfaceId") else "",
        f"association {item['AssociationId']}" if item.get("AssociationId") else "",
    )
    return Found(kind=NAME, id=item["AllocationId"], tags=tags_of(item), facts=next(filter(None, users), ""))


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("ec2", "release_address", AllocationId=found.id)


async def _before(turn: Turn) -> Verdict | None:
    return Blocked(f"it is the address of {turn.found.facts}") if turn.found.facts else None


# What has no allocation id is an address of EC2-Classic, which carries no tags: the filter leaves it out.
_READER = Ec2Reader("describe_addresses", "Addresses", "allocation-id", _form, paged=False)

ELASTIC_IP = Kind(
    name=NAME,
    task="elastic-ip",
    service="ec2",
    chain="addresses",
    stage=1,
    operation="ec2.ReleaseAddress",
    checking="ec2.DescribeAddresses",
    arn=("ec2", "elastic-ip"),
    read=_READER.read,
    reads=("ec2.DescribeAddresses",),
    list_all=_READER.list_all,
    in_vpc=False,
    told=False,
    delete=_delete,
    before=_before,
)
