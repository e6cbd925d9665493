"""VPC endpoints. The delete call takes several and reports failures inside a successful response."""

from workers.providers.aws.errors import error_from_response
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.vpc-endpoint"


def _parse(item: Item) -> AwsResource:
    return AwsResource(
        kind=NAME,
        id=item["VpcEndpointId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        made=item.get("CreationTimestamp"),
        # Capitalised in the documentation, lower case in responses.
        state=(item.get("State") or "").lower(),
    )


async def _delete(attempt: AwsAttempt) -> None:
    answer = await attempt.client.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[attempt.resource.id])
    for refused in answer.get("Unsuccessful") or ():
        raise error_from_response(refused, "ec2:DeleteVpcEndpoints")


_READER = Ec2Reader("describe_vpc_endpoints", "VpcEndpoints", "vpc-endpoint-id", _parse)

VPC_ENDPOINT = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.DeleteVpcEndpoints",
    check_operation="ec2.DescribeVpcEndpoints",
    arn=("ec2", "vpc-endpoint"),
    read=_READER.read,
    read_operations=("ec2.DescribeVpcEndpoints",),
    list_all=_READER.list_all,
    in_tagging_api=False,
    limits={"ec2.DeleteVpcEndpoints": (4, 0.3)},
    delete=_delete,
    deleting_states=frozenset({"deleting"}),
    absent_states=frozenset({"deleted"}),
)
