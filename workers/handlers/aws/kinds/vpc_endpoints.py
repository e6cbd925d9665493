"""VPC endpoints. Their call answers for several at once, and says in its answer which it could not delete."""

from workers.handlers.aws.errors import answered
from workers.handlers.aws.model import Calls, Found, Kind
from workers.handlers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.vpc-endpoint"


def _form(item: Item) -> Found:
    return Found(
        kind=NAME,
        id=item["VpcEndpointId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        made=item.get("CreationTimestamp"),
        # Written large in the documentation and small on the wire.
        state=(item.get("State") or "").lower(),
    )


async def _delete(calls: Calls, found: Found) -> None:
    answer = await calls.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[found.id])
    for refused in answer.get("Unsuccessful") or ():
        raise answered(refused, "ec2:DeleteVpcEndpoints")


_READER = Ec2Reader("describe_vpc_endpoints", "VpcEndpoints", "vpc-endpoint-id", _form)

VPC_ENDPOINT = Kind(
    name=NAME,
    task="vpc-endpoint",
    service="ec2",
    chain="endpoints",
    stage=0,
    operation="ec2.DeleteVpcEndpoints",
    checking="ec2.DescribeVpcEndpoints",
    arn=("ec2", "vpc-endpoint"),
    read=_READER.read,
    reads=("ec2.DescribeVpcEndpoints",),
    list_all=_READER.list_all,
    told=False,
    limits={"ec2.DeleteVpcEndpoints": (4, 0.3)},
    delete=_delete,
    going=frozenset({"deleting"}),
    absent=frozenset({"deleted"}),
)
