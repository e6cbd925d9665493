"""Elastic IPs, released only while they are not associated. They have no VPC, and not every region's tagging API
reports them."""

from service.contract import Blocked, Verdict
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.elastic-ip"


def _parse(item: Item) -> AwsResource:
    users = (
        f"instance {item['InstanceId']}" if item.get("InstanceId") else "",
        f"network interface {item['NetworkInterfaceId']}" if item.get("NetworkInterfaceId") else "",
        f"association {item['AssociationId']}" if item.get("AssociationId") else "",
    )
    return AwsResource(kind=NAME, id=item["AllocationId"], tags=tags_of(item), facts=next(filter(None, users), ""))


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "release_address", AllocationId=attempt.resource.id)


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    return Blocked(f"it is the address of {attempt.resource.facts}") if attempt.resource.facts else None


# Addresses without an allocation id are of EC2-Classic and carry no tags: the filter omits them.
_READER = Ec2Reader("describe_addresses", "Addresses", "allocation-id", _parse, paged=False)

ELASTIC_IP = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.ReleaseAddress",
    check_operation="ec2.DescribeAddresses",
    arn=("ec2", "elastic-ip"),
    read=_READER.read,
    read_operations=("ec2.DescribeAddresses",),
    list_all=_READER.list_all,
    in_vpc=False,
    in_tagging_api=False,
    delete=_delete,
    precheck=_precheck,
)
