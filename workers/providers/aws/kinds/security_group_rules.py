"""Revocation of rules that refer to a security group in deletion, by rule id. Rules of the owner's groups are revoked
together; those of foreign groups one at a time, each only after the audit holds the whole rule."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from service.contract import LONGEST_KEPT, Blocked, Verdict
from service.masking import is_harmless
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.blocked_state import MAX_IDLE_ROUNDS, BlockedState, blocked_state_of
from workers.providers.aws.kinds.declaration import AwsAttempt, KindStep
from workers.providers.aws.kinds.security_group_dependencies import (
    DELETE,
    GROUPS,
    GroupReference,
    blocked_by_foreign,
    describe_references,
    ids_of,
    is_own,
    may_be_own,
    references_to,
    revoke_operation,
)
from workers.providers.aws.reading.ec2 import Item, matching, tags_of

RULES: Final = "ec2.DescribeSecurityGroupRules"
GONE_CODES: Final = frozenset({"InvalidPermission.NotFound", "InvalidSecurityGroupRuleId.NotFound"})


class ReferringRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with all that is needed to recreate it; it is recorded before it is revoked."""

    rule: str
    group: str
    refers: str
    egress: bool = False
    protocol: str = "-1"
    first: int = -1
    last: int = -1
    owner: str = ""
    description: str = ""
    tags: dict[str, str] = {}

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def unkept(self) -> str:
        """Why the rule can't be recorded verbatim; empty if it can."""
        if len(self.text.encode()) > LONGEST_KEPT:
            return f"its description and tags are longer than the {LONGEST_KEPT} bytes of a record"
        return "" if is_harmless(self.text) else "something in its description or tags looks like a credential"


class ReferringRules(msgspec.Struct, frozen=True, kw_only=True):
    """References to each group, and the rules of the referring groups, by group."""

    references: dict[str, list[GroupReference]]
    rules: dict[str, list[ReferringRule]]


async def _lookup(attempts: Sequence[AwsAttempt], *, egress: bool) -> ReferringRules:
    client = attempts[0].client
    references = await references_to(client, ids_of(attempts), egress=egress)
    groups = sorted({one.group.id for some in references.values() for one in some})
    rules: dict[str, list[ReferringRule]] = {}
    async for item in matching(client, "describe_security_group_rules", "SecurityGroupRules", "group-id", groups):
        if bool(item.get("IsEgress")) == egress and (rule := _parse_rule(item)) is not None:
            rules.setdefault(rule.group, []).append(rule)
    return ReferringRules(references=references, rules=rules)


def _parse_rule(item: Item) -> ReferringRule | None:
    """None if it refers to no group."""
    referred = item.get("ReferencedGroupInfo") or {}
    if not referred.get("GroupId"):
        return None
    return ReferringRule(
        rule=item["SecurityGroupRuleId"],
        group=item["GroupId"],
        refers=referred["GroupId"],
        egress=bool(item.get("IsEgress")),
        protocol=str(item.get("IpProtocol", "-1")),
        first=int(item.get("FromPort", -1)),
        last=int(item.get("ToPort", -1)),
        owner=referred.get("UserId") or "",
        description=item.get("Description") or "",
        tags=dict(sorted(tags_of(item).items())),
    )


async def _revoke(attempt: AwsAttempt, *, egress: bool) -> Verdict:
    seen: ReferringRules = attempt.looked_up
    references = seen.references.get(attempt.resource.id, [])
    if not references:
        return _idle_round(attempt, "no rule refers to it any more")
    # If the owner wants less since the plan, its other groups stay, and their rules are foreign. It is read right
    # before the call; if no group can be the owner's, no rule is revoked as own.
    asked = any(may_be_own(one.group, attempt) for one in references)
    claim = await attempt.live_claim() if asked else attempt.claim
    ours = [one for one in references if is_own(one.group, attempt, claim)]
    for one in ours:
        if rules := _referring(seen, one, attempt.resource.id):
            if await _revoke_rules(attempt, rules, egress=egress):
                return attempt.move_to(DELETE, f"revoked {len(rules)} rules of {one.group.id} that refer to it")
            return _no_rule_found(attempt, references)
    foreign = [one for one in references if one not in ours]
    if foreign and not attempt.settings.revoke_foreign_rules:
        return blocked_by_foreign(foreign, attempt, claim)
    rules = [rule for one in foreign for rule in _referring(seen, one, attempt.resource.id)]
    return await _foreign(attempt, rules, egress=egress) if rules else _no_rule_found(attempt, references)


async def _foreign(attempt: AwsAttempt, rules: Sequence[ReferringRule], *, egress: bool) -> Verdict:
    if unkept := next((rule for rule in rules if rule.unkept), None):
        return Blocked(
            f"referred to by rule {unkept.rule} of {unkept.group}, not its owner's own, which can't be written down "
            f"so that it could be made again: {unkept.unkept}; revoke it by hand",
            person=True,
        )
    state = blocked_state_of(attempt.resume)
    # Revoked only if the record matches it verbatim, else recorded first: a crash loses no rule.
    if recorded := next((rule for rule in rules if _digest(rule) == state.recorded), None):
        await attempt.clear()
        if not await _revoke_rules(attempt, [recorded], egress=egress):
            return _no_rule_found(attempt, attempt.looked_up.references[attempt.resource.id])
        detail = f"revoked {recorded.rule} of {recorded.group}, which is not its owner's"
        return attempt.move_to(DELETE, detail, kept=recorded.text)
    resume = BlockedState(idle_rounds=state.idle_rounds, recorded=_digest(rules[0])).text
    detail = "revoking a rule that is not its owner's"
    return attempt.move_to(revoke_operation(egress=egress), detail, resume=resume, kept=rules[0].text)


def _referring(seen: ReferringRules, reference: GroupReference, referred: str) -> list[ReferringRule]:
    return [rule for rule in seen.rules.get(reference.group.id, ()) if rule.refers == referred]


def _digest(rule: ReferringRule) -> str:
    return hashlib.sha256(rule.text.encode()).hexdigest()


def _no_rule_found(attempt: AwsAttempt, references: Sequence[GroupReference]) -> Verdict:
    """AWS shows groups whose rules are not found, or reported as gone. It may be eventually consistent."""
    words = describe_references(references)
    if blocked_state_of(attempt.resume).idle_rounds < MAX_IDLE_ROUNDS:
        return _idle_round(attempt, f"there is no rule to revoke, although AWS shows {words}")
    return Blocked(
        f"AWS says that it is referred to by {words}, but no such rule is to be found by its id: look at that group, "
        f"and for references from peered VPCs and from other accounts that share this one",
        person=True,
    )


def _idle_round(attempt: AwsAttempt, detail: str) -> Verdict:
    # Delayed: while a group still shows a revoked rule, the job would come back here.
    after = aligned_delay(attempt.settings.check_after, 0.5)
    idle_rounds = min(blocked_state_of(attempt.resume).idle_rounds + 1, MAX_IDLE_ROUNDS)
    return attempt.move_to(DELETE, detail, after=after, resume=BlockedState(idle_rounds=idle_rounds).text)


async def _revoke_rules(attempt: AwsAttempt, rules: Sequence[ReferringRule], *, egress: bool) -> bool:
    """Whether anything was revoked. The caller has asked for consent."""
    operation = "revoke_security_group_egress" if egress else "revoke_security_group_ingress"
    try:
        await attempt.client.call(
            "ec2", operation, GroupId=rules[0].group, SecurityGroupRuleIds=[rule.rule for rule in rules]
        )
    except AwsError as error:
        # The referring group was deleted meanwhile, and its rules with it.
        if error.what != "gone" and error.code not in GONE_CODES:
            raise
        return False
    return True


def revoke_step(*, egress: bool) -> KindStep:
    return KindStep(
        run=partial(_revoke, egress=egress), lookup=partial(_lookup, egress=egress), read_operations=(GROUPS, RULES)
    )
