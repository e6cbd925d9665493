"""NAT gateways, which are shown as deleted for an hour after they are gone. Their addresses are free only then."""

from workers.handlers.aws.model import Calls, Found, Kind
from workers.handlers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.nat-gateway"


def _form(item: Item) -> Found:
    return Found(
        kind=NAME,
        id=item["NatGatewayId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        state=item.get("State") or "",
        made=item.get("CreateTime"),
    )


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("ec2", "delete_nat_gateway", NatGatewayId=found.id)


_READER = Ec2Reader("describe_nat_gateways", "NatGateways", "nat-gateway-id", _form, filters="Filter")

NAT_GATEWAY = Kind(
    name=NAME,
    task="nat-gateway",
    service="ec2",
    chain="addresses",
    stage=0,
    operation="ec2.DeleteNatGateway",
    checking="ec2.DescribeNatGateways",
    arn=("ec2", "natgateway"),
    read=_READER.read,
    reads=("ec2.DescribeNatGateways",),
    list_all=_READER.list_all,
    limits={"ec2.DeleteNatGateway": (10, 1)},
    delete=_delete,
    going=frozenset({"deleting"}),
    absent=frozenset({"deleted"}),
)
