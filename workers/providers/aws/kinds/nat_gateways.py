"""NAT gateways, which AWS shows as deleted for about an hour. Their addresses are free only once they are deleted."""

from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.nat-gateway"


def _parse(item: Item) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["NatGatewayId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        state=item.get("State") or "",
        made=item.get("CreateTime"),
    )


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "delete_nat_gateway", NatGatewayId=attempt.resource.id)


_READER = Ec2Reader("describe_nat_gateways", "NatGateways", "nat-gateway-id", _parse, filters="Filter")

NAT_GATEWAY = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.DeleteNatGateway",
    check_operation="ec2.DescribeNatGateways",
    arn=("ec2", "natgateway"),
    read=_READER.read,
    read_operations=("ec2.DescribeNatGateways",),
    list_all=_READER.list_all,
    limits={"ec2.DeleteNatGateway": (10, 1)},
    delete=_delete,
    deleting_states=frozenset({"deleting"}),
    absent_states=frozenset({"deleted"}),
)
