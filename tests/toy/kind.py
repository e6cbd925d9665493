"""Sets of DHCP options. They are in no VPC, and can't be deleted while a VPC uses them."""

from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.dhcp-options"


def _parse(item: Item) -> AwsResource:
    return AwsResource(kind=NAME, id=item["DhcpOptionsId"], tags=tags_of(item))


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "delete_dhcp_options", DhcpOptionsId=attempt.resource.id)


_READER = Ec2Reader("describe_dhcp_options", "DhcpOptions", "dhcp-options-id", _parse)

LIST_OPTIONS = _READER.list_all

DHCP_OPTIONS = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.DeleteDhcpOptions",
    check_operation="ec2.DescribeDhcpOptions",
    arn=("ec2", "dhcp-options"),
    read=_READER.read,
    read_operations=("ec2.DescribeDhcpOptions",),
    list_all=LIST_OPTIONS,
    in_vpc=False,
    delete=_delete,
)
