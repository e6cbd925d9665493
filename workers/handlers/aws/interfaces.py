"""Network interfaces in words: what they are attached to, and who made them.
Those that a balancer leaves behind drain by themselves; all others stay until somebody takes them away."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """`draining` says that a balancer made it: those stay for minutes after their balancer is gone."""

    id: str
    status: str
    words: str
    groups: tuple[str, ...]
    draining: bool


def interface_of(item: Mapping[str, Any]) -> Interface:
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
