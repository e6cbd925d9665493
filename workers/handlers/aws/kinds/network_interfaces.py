"""Network interfaces that nothing uses any more. One that is attached goes with what it is attached to."""

from service.contract import Blocked, Verdict
from workers.handlers.aws.interfaces import Interface, interface_of
from workers.handlers.aws.model import Calls, Found, Kind, Turn
from workers.handlers.aws.reading.ec2 import Ec2Reader, Item, tags_of

NAME = "aws.network-interface"


def _form(item: Item) -> Found:
    interface = interface_of(item)
    return Found(
        kind=NAME,
        id=interface.id,
        # Alone of all resources it calls them so.
        tags=tags_of({"Tags": item.get("TagSet")}),
        vpc=item.get("VpcId") or "",
        state=interface.status,
        facts=interface,
    )


async def _delete(calls: Calls, found: Found) -> None:
    await calls.call("ec2", "delete_network_interface", NetworkInterfaceId=found.id)


async def _before(turn: Turn) -> Verdict | None:
    interface: Interface = turn.found.facts
    return None if interface.status == "available" else Blocked(f"used: {interface.words}")


_READER = Ec2Reader("describe_network_interfaces", "NetworkInterfaces", "network-interface-id", _form)

NETWORK_INTERFACE = Kind(
    name=NAME,
    task="network-interface",
    service="ec2",
    chain="interfaces",
    stage=0,
    operation="ec2.DeleteNetworkInterface",
    checking="ec2.DescribeNetworkInterfaces",
    arn=("ec2", "network-interface"),
    read=_READER.read,
    reads=("ec2.DescribeNetworkInterfaces",),
    list_all=_READER.list_all,
    limits={"ec2.DeleteNetworkInterface": (100, 5)},
    delete=_delete,
    # So it says of one that was attached a moment ago.
    depends=frozenset({"InvalidParameterValue"}),
    before=_before,
)
