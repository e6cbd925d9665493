"""What stands in the way of a security group: interfaces that use it, and rules of other groups that refer to it.
Rules of the owner's other groups are revoked; those of foreign groups are named, or revoked one by one by rule id, each
recorded before the call, only where the settings allow it."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from service.contract import Blocked, Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.interfaces import Interface, interface_of
from workers.handlers.aws.model import Calls, Found, Owner, Turn
from workers.handlers.aws.ownership import goes_along, not_marked
from workers.handlers.aws.reading.ec2 import Item, matching, tags_of
from workers.handlers.aws.rounds import until_round
from workers.handlers.aws.trails import trail_of

DELETE: Final = "ec2.DeleteSecurityGroup"
INTERFACES: Final = "ec2.DescribeNetworkInterfaces"
GROUPS: Final = "ec2.DescribeSecurityGroups"

PATIENT: Final = 400
"""Rounds of waiting for a balancer's interface; one that outlives them belongs to a balancer that stays."""

LINGERING: Final = 60
"""Tries, some ten minutes of them, in which a dependency that is not to be seen is taken for one that just went."""

_NAMED: Final = 4


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of another group, all in one direction, that refer to a group."""

    group: Found
    egress: bool
    words: str


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What uses each of the groups that were asked for, by their ids."""

    interfaces: dict[str, list[Interface]]
    references: dict[str, list[Reference]]


def group_of(item: Item) -> Found:
    return Found(
        kind="aws.security-group",
        id=item["GroupId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        facts=item.get("GroupName") or "",
    )


async def around(turns: Sequence[Turn]) -> Around:
    calls, ids = turns[0].calls, ids_of(turns)
    return Around(
        interfaces=await interfaces_of(calls, ids),
        references=await references_to(calls, ids, egress=False, to=await references_to(calls, ids, egress=True)),
    )


async def attached(turns: Sequence[Turn]) -> Around:
    """The interfaces alone: all that is looked at while they drain."""
    return Around(interfaces=await interfaces_of(turns[0].calls, ids_of(turns)), references={})


def ids_of(turns: Sequence[Turn]) -> list[str]:
    return sorted({turn.found.id for turn in turns})


async def interfaces_of(calls: Calls, ids: Sequence[str]) -> dict[str, list[Interface]]:
    found: dict[str, list[Interface]] = {}
    async for item in matching(calls, "describe_network_interfaces", "NetworkInterfaces", "group-id", ids):
        interface = interface_of(item)
        for group in interface.groups:
            found.setdefault(group, []).append(interface)
    return found


async def references_to(
    calls: Calls, ids: Sequence[str], *, egress: bool, to: dict[str, list[Reference]] | None = None
) -> dict[str, list[Reference]]:
    """By the group that is referred to; a group's own references to itself stand against nothing."""
    wanted, found = frozenset(ids), {} if to is None else to
    name = "egress.ip-permission.group-id" if egress else "ip-permission.group-id"
    async for item in matching(calls, "describe_security_groups", "SecurityGroups", name, ids):
        group = group_of(item)
        permissions = item.get("IpPermissionsEgress" if egress else "IpPermissions") or ()
        for referred in sorted(_referred(permissions) & wanted - {group.id}):
            words = _words(group, permissions, referred, egress=egress)
            found.setdefault(referred, []).append(Reference(group=group, egress=egress, words=words))
    return found


def _referred(permissions: Sequence[Item]) -> set[str]:
    return {pair["GroupId"] for one in permissions for pair in one.get("UserIdGroupPairs") or () if "GroupId" in pair}


def _words(group: Found, permissions: Sequence[Item], referred: str, *, egress: bool) -> str:
    ports = [ports_of(one) for one in permissions if referred in _referred([one])]
    return f"{'egress' if egress else 'ingress'} rule of {group.id} ({group.facts}) for {', '.join(ports[:_NAMED])}"


def ports_of(rule: Item) -> str:
    """A rule's protocol and ports, as people write them."""
    protocol, first, last = str(rule.get("IpProtocol", "-1")), rule.get("FromPort"), rule.get("ToPort")
    if protocol == "-1":
        return "all traffic"
    return f"{protocol} {first}" if first == last else f"{protocol} {first}-{last}"


def own(group: Found, owner: Owner) -> bool:
    """Whether a group that refers to one of the owner's is the owner's too: then it goes, and its rules may."""
    if not_marked(group, owner) is None:
        return True
    other: Literal["ccm", "lbc"] = "ccm" if owner.by == "lbc" else "lbc"
    return owner.both and not_marked(group, msgspec.structs.replace(owner, by=other)) is None


def may_be_own(group: Found, owner: Owner) -> bool:
    """As `own`, should both tags count."""
    return own(group, msgspec.structs.replace(owner, both=True))


async def before(turn: Turn) -> Verdict | None:
    """The owner's own rules go at once, while interfaces drain; foreign ones only when nothing else is in the way."""
    seen: Around = turn.seen
    references = seen.references.get(turn.found.id, [])
    ours = [one for one in references if own(one.group, turn.owner)]
    # What was tried in vain does not keep the others from their turn.
    tried = trail_of(turn.resume).vain
    if ours:
        one = ours[tried % len(ours)]
        return turn.hop(revoking(egress=one.egress), f"referred to by {one.words}", resume=turn.resume)
    if waiting := seen.interfaces.get(turn.found.id):
        # The first look is this one; the next are made where only interfaces are read.
        return turn.hop(INTERFACES, _used_by(waiting), after=until_round(turn.settings.drain_check, 0.1))
    if references and turn.settings.revoke_foreign_rules:
        one = references[tried % len(references)]
        return turn.hop(revoking(egress=one.egress), f"referred to by {one.words}", resume=turn.resume)
    return not_ours(references, turn.owner) if references else None


def not_ours(references: Sequence[Reference], owner: Owner) -> Blocked:
    """Rules that stand against it, and what to do: nothing where somebody else removes them with the cluster."""
    others: dict[str, list[Reference]] = {}
    for one in references:
        others.setdefault(goes_along(one.group, owner), []).append(one)
    words = "; ".join(_not_ours(who, some) for who, some in sorted(others.items()))
    return Blocked(words, person="" in others)


def _not_ours(who: str, references: Sequence[Reference]) -> str:
    if who:
        return f"referred to by {named(references)}: {who}'s own, which goes with the cluster by itself; no need to act"
    return (
        f"referred to by {named(references)}, not the cluster's own: revoke it, or let Knell do it (setting "
        f"aws.revoke_foreign_rules)"
    )


async def drained(turn: Turn) -> Verdict:
    """In the lane of interfaces: nothing is deleted here."""
    waiting = turn.seen.interfaces.get(turn.found.id, [])
    if not waiting:
        return turn.hop(DELETE, "no interface uses it any more")
    drains = all(one.draining for one in waiting) and turn.job.record.waits < PATIENT
    return Blocked(_used_by(waiting), until=until_round(turn.settings.drain_check, 0.1) if drains else None)


async def refused(turn: Turn, error: AwsError) -> Verdict:
    """AWS seldom names what it saw, and we saw nothing. At first that is because an interface is no longer shown but
    not quite gone; later because what depends on it is in a VPC or an account that we do not see."""
    return Blocked(
        f"AWS says that something depends on it ({error.code}: {error.message or 'no more than that'}), but no "
        f"interface and no rule that does is to be seen: look for references from peered VPCs and from other accounts "
        f"that share this one",
        unseen=True,
        person=turn.job.record.waits >= LINGERING,
    )


def revoking(*, egress: bool) -> str:
    return "ec2.RevokeSecurityGroupEgress" if egress else "ec2.RevokeSecurityGroupIngress"


def named(references: Sequence[Reference]) -> str:
    return _some([one.words for one in references])


def _used_by(interfaces: Sequence[Interface]) -> str:
    return f"used by {_some([one.words for one in interfaces])}"


def _some(words: Sequence[Any]) -> str:
    rest = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
