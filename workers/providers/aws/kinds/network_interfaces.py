"""Network interfaces that are not in use. An attached one is deleted with what it is attached to; those of a load
balancer disappear by themselves some minutes after it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.contract import Blocked, Verdict
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind
from workers.providers.aws.model import AwsResource
from workers.providers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.network-interface"


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface and its user. `draining`: created by a load balancer, and removed by AWS minutes after it."""

    id: str
    status: str
    words: str
    groups: tuple[str, ...]
    draining: bool


def parse_interface(item: Mapping[str, Any]) -> Interface:
    id_, description = item["NetworkInterfaceId"], item.get("Description") or ""
    attachment = item.get("Attachment") or {}
    by_balancer = description.startswith("ELB ") or item.get("RequesterId") == "amazon-elb"
    words = f"network interface {id_}" + (f" ({description})" if description else "")
    if instance := attachment.get("InstanceId"):
        words += f", attached to instance {instance}"
    elif by_balancer:
        words += " of a load balancer"
    elif item.get("RequesterManaged"):
        words += f", managed by {item.get('RequesterId') or 'an AWS service'}"
    elif attachment.get("InstanceOwnerId"):
        words += f", attached by {attachment['InstanceOwnerId']}"
    return Interface(
        id=id_,
        status=item.get("Status") or "",
        words=words,
        groups=tuple(group["GroupId"] for group in item.get("Groups") or ()),
        draining=by_balancer and not attachment.get("InstanceId"),
    )


def _parse(item: Item) -> AwsResource:
    interface = parse_interface(item)
    return AwsResource(
        kind=NAME,
        id=interface.id,
        # Only this API calls them TagSet.
        tags=tags_of({"Tags": item.get("TagSet")}),
        vpc=item.get("VpcId") or "",
        state=interface.status,
        facts=interface,
    )


async def _delete(attempt: AwsAttempt) -> None:
    await attempt.client.call("ec2", "delete_network_interface", NetworkInterfaceId=attempt.resource.id)


async def _precheck(attempt: AwsAttempt) -> Verdict | None:
    interface: Interface = attempt.resource.facts
    return None if interface.status == "available" else Blocked(f"used: {interface.words}")


_READER = Ec2Reader("describe_network_interfaces", "NetworkInterfaces", "network-interface-id", _parse)

NETWORK_INTERFACE = AwsKind(
    name=NAME,
    service="ec2",
    delete_operation="ec2.DeleteNetworkInterface",
    check_operation="ec2.DescribeNetworkInterfaces",
    arn=("ec2", "network-interface"),
    read=_READER.read,
    read_operations=("ec2.DescribeNetworkInterfaces",),
    list_all=_READER.list_all,
    limits={"ec2.DeleteNetworkInterface": (100, 5)},
    delete=_delete,
    # Returned for an interface that was attached a moment ago.
    dependency_codes=frozenset({"InvalidParameterValue"}),
    precheck=_precheck,
)
