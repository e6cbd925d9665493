"""Dependencies that block the deletion of a security group: interfaces that use it, and rules of other groups that
refer to it. Rules of the owner's other groups are revoked. Rules of foreign groups are reported, or revoked one by one
by rule id, each recorded before the call, only if the settings allow it."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from service.contract import Blocked, Verdict
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.blocked_state import blocked_state_of
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.kinds.network_interfaces import Interface, parse_interface
from workers.providers.aws.model import AwsClaim, AwsClient, AwsResource
from workers.providers.aws.protection import protection_reason, retention_reason
from workers.providers.aws.reading.ec2 import Item, matching, tags_of

DELETE: Final = "ec2.DeleteSecurityGroup"
INTERFACES: Final = "ec2.DescribeNetworkInterfaces"
GROUPS: Final = "ec2.DescribeSecurityGroups"

MAX_DRAIN_ROUNDS: Final = 400
"""Rounds of waiting for a load balancer's interface; one that remains longer belongs to a load balancer that stays."""

UNSEEN_ROUNDS: Final = 60
"""Attempts, about ten minutes of them, in which an invisible dependency is assumed to be one just deleted."""

_MAX_NAMED: Final = 4


class GroupReference(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of another group, in one direction, that refer to a group."""

    group: AwsResource
    egress: bool
    words: str


class GroupDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies by group id."""

    interfaces: dict[str, list[Interface]]
    references: dict[str, list[GroupReference]]


def parse_group(item: Item) -> AwsResource:
    return AwsResource(
        kind="aws.security-group",
        id=item["GroupId"],
        tags=tags_of(item),
        vpc=item.get("VpcId") or "",
        facts=item.get("GroupName") or "",
    )


async def find_dependencies(attempts: Sequence[AwsAttempt]) -> GroupDependencies:
    client, ids = attempts[0].client, ids_of(attempts)
    return GroupDependencies(
        interfaces=await interfaces_of(client, ids),
        references=await references_to(client, ids, egress=False, to=await references_to(client, ids, egress=True)),
    )


async def find_interfaces(attempts: Sequence[AwsAttempt]) -> GroupDependencies:
    """Interfaces only: nothing else is read while they drain."""
    return GroupDependencies(interfaces=await interfaces_of(attempts[0].client, ids_of(attempts)), references={})


def ids_of(attempts: Sequence[AwsAttempt]) -> list[str]:
    return sorted({attempt.resource.id for attempt in attempts})


async def interfaces_of(client: AwsClient, ids: Sequence[str]) -> dict[str, list[Interface]]:
    found: dict[str, list[Interface]] = {}
    async for item in matching(client, "describe_network_interfaces", "NetworkInterfaces", "group-id", ids):
        interface = parse_interface(item)
        for group in interface.groups:
            found.setdefault(group, []).append(interface)
    return found


async def references_to(
    client: AwsClient, ids: Sequence[str], *, egress: bool, to: dict[str, list[GroupReference]] | None = None
) -> dict[str, list[GroupReference]]:
    """By the group referred to; references of a group to itself block nothing."""
    wanted, found = frozenset(ids), {} if to is None else to
    name = "egress.ip-permission.group-id" if egress else "ip-permission.group-id"
    async for item in matching(client, "describe_security_groups", "SecurityGroups", name, ids):
        group = parse_group(item)
        permissions = item.get("IpPermissionsEgress" if egress else "IpPermissions") or ()
        for referred in sorted(_referred(permissions) & wanted - {group.id}):
            words = _describe_rules(group, permissions, referred, egress=egress)
            found.setdefault(referred, []).append(GroupReference(group=group, egress=egress, words=words))
    return found


def _referred(permissions: Sequence[Item]) -> set[str]:
    return {pair["GroupId"] for one in permissions for pair in one.get("UserIdGroupPairs") or () if "GroupId" in pair}


def _describe_rules(group: AwsResource, permissions: Sequence[Item], referred: str, *, egress: bool) -> str:
    ports = [ports_of(one) for one in permissions if referred in _referred([one])]
    return f"{'egress' if egress else 'ingress'} rule of {group.id} ({group.facts}) for {', '.join(ports[:_MAX_NAMED])}"


def ports_of(rule: Item) -> str:
    """A rule's protocol and ports, to display."""
    protocol, first, last = str(rule.get("IpProtocol", "-1")), rule.get("FromPort"), rule.get("ToPort")
    if protocol == "-1":
        return "all traffic"
    return f"{protocol} {first}" if first == last else f"{protocol} {first}-{last}"


def is_own(group: AwsResource, attempt: AwsAttempt, claim: AwsClaim) -> bool:
    """Whether a referring group is the owner's as well: then it is to be deleted, and its rules may be revoked."""
    return _may_be_changed(group) and attempt.judge.removes_too(claim, group) is True


def may_be_own(group: AwsResource, attempt: AwsAttempt) -> bool:
    """Whether it may be so by the latest read of the owner."""
    return _may_be_changed(group) and attempt.judge.removes_too(attempt.claim, group) is not False


def _may_be_changed(group: AwsResource) -> bool:
    """A group that is kept by a tag is never changed, and neither are its rules."""
    return not (protection_reason(group) or retention_reason(group))


async def check_dependencies(attempt: AwsAttempt) -> Verdict | None:
    """Rules of the owner's groups are revoked at once, while interfaces drain; foreign ones only when nothing else
    blocks."""
    seen: GroupDependencies = attempt.looked_up
    references = seen.references.get(attempt.resource.id, [])
    ours = [one for one in references if is_own(one.group, attempt, attempt.claim)]
    # Rotates, so that a rule that can't be revoked does not block the others.
    tried = blocked_state_of(attempt.resume).idle_rounds
    if ours:
        one = ours[tried % len(ours)]
        return attempt.move_to(
            revoke_operation(egress=one.egress), f"referred to by {one.words}", resume=attempt.resume
        )
    if waiting := seen.interfaces.get(attempt.resource.id):
        # Read once here; from now on in the lane that reads only interfaces.
        return attempt.move_to(INTERFACES, _used_by(waiting), after=aligned_delay(attempt.settings.drain_check, 0.1))
    if references and attempt.settings.revoke_foreign_rules:
        one = references[tried % len(references)]
        return attempt.move_to(
            revoke_operation(egress=one.egress), f"referred to by {one.words}", resume=attempt.resume
        )
    return blocked_by_foreign(references, attempt, attempt.claim) if references else None


def blocked_by_foreign(references: Sequence[GroupReference], attempt: AwsAttempt, claim: AwsClaim) -> Blocked:
    """Verdict for foreign rules, with what to do; no action is needed for a group that another controller deletes with
    the owner."""
    others: dict[str, list[GroupReference]] = {}
    for one in references:
        others.setdefault(attempt.judge.removed_by(claim, one.group), []).append(one)
    words = "; ".join(_describe_foreign(who, some) for who, some in sorted(others.items()))
    return Blocked(words, person="" in others)


def _describe_foreign(who: str, references: Sequence[GroupReference]) -> str:
    rules = describe_references(references)
    if who:
        return f"referred to by {rules}: {who}'s own, which goes with its owner by itself; no need to act"
    return (
        f"referred to by {rules}, not its owner's own: revoke it, or let Knell do it (setting aws.revoke_foreign_rules)"
    )


async def wait_for_interfaces(attempt: AwsAttempt) -> Verdict:
    """Step in the lane of interfaces: deletes nothing."""
    waiting = attempt.looked_up.interfaces.get(attempt.resource.id, [])
    if not waiting:
        return attempt.move_to(DELETE, "no interface uses it any more")
    drains = all(one.draining for one in waiting) and attempt.job.record.waits < MAX_DRAIN_ROUNDS
    return Blocked(_used_by(waiting), until=aligned_delay(attempt.settings.drain_check, 0.1) if drains else None)


async def on_unseen_dependency(attempt: AwsAttempt, error: AwsError) -> Verdict:
    """AWS rarely names the dependency, and none is visible here. At first an interface is gone from lists but not yet
    deleted; later the dependency is in a VPC or account that can't be read."""
    return Blocked(
        f"AWS says that something depends on it ({error.code}: {error.message or 'no more than that'}), but no "
        f"interface and no rule that does is visible: look for references from peered VPCs and from other accounts "
        f"that share this one",
        unseen=True,
        person=attempt.job.record.waits >= UNSEEN_ROUNDS,
    )


def revoke_operation(*, egress: bool) -> str:
    return "ec2.RevokeSecurityGroupEgress" if egress else "ec2.RevokeSecurityGroupIngress"


def describe_references(references: Sequence[GroupReference]) -> str:
    return _join([one.words for one in references])


def _used_by(interfaces: Sequence[Interface]) -> str:
    return f"used by {_join([one.words for one in interfaces])}"


def _join(words: Sequence[Any]) -> str:
    rest = len(words) - _MAX_NAMED
    return ", ".join(words[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
