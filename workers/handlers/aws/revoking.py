"""Rules that refer to a group which is to go, revoked by their ids: those of the owner's own groups at once.
Those of foreign groups go one at a time, and each only after what it was has been written down, whole."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from service.contract import LONGEST_KEPT, Blocked, Verdict
from service.masking import is_harmless
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.groups import (
    DELETE,
    GROUPS,
    Reference,
    ids_of,
    may_be_own,
    named,
    not_ours,
    own,
    references_to,
    revoking,
)
from workers.handlers.aws.model import Step, Turn
from workers.handlers.aws.reading.ec2 import Item, matching, tags_of
from workers.handlers.aws.rounds import until_round
from workers.handlers.aws.trails import VAIN, Trail, trail_of

RULES: Final = "ec2.DescribeSecurityGroupRules"
GONE: Final = frozenset({"InvalidPermission.NotFound", "InvalidSecurityGroupRuleId.NotFound"})


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule as it has to be known to make it again; it is written down before it is revoked."""

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
        """Why the record can't have it word for word; empty where it can."""
        if len(self.text.encode()) > LONGEST_KEPT:
            return f"its description and tags are longer than the {LONGEST_KEPT} bytes of a record"
        return "" if is_harmless(self.text) else "something in its description or tags looks like a credential"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What refers to each group, and the rules of the groups that do, by group."""

    references: dict[str, list[Reference]]
    rules: dict[str, list[Rule]]


async def _look(turns: Sequence[Turn], *, egress: bool) -> Rules:
    calls = turns[0].calls
    references = await references_to(calls, ids_of(turns), egress=egress)
    groups = sorted({one.group.id for some in references.values() for one in some})
    rules: dict[str, list[Rule]] = {}
    async for item in matching(calls, "describe_security_group_rules", "SecurityGroupRules", "group-id", groups):
        if bool(item.get("IsEgress")) == egress and (rule := _rule_of(item)) is not None:
            rules.setdefault(rule.group, []).append(rule)
    return Rules(references=references, rules=rules)


def _rule_of(item: Item) -> Rule | None:
    """None for one that refers to no group."""
    referred = item.get("ReferencedGroupInfo") or {}
    if not referred.get("GroupId"):
        return None
    return Rule(
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


async def _revoke(turn: Turn, *, egress: bool) -> Verdict:
    seen: Rules = turn.seen
    references = seen.references.get(turn.found.id, [])
    if not references:
        return _in_vain(turn, "no rule refers to it any more")
    # A task that was taken away since the plan leaves groups where they are, and their rules are theirs.
    # Asked right before the call; where no group may be the owner's, none of theirs is revoked as own.
    asked = any(may_be_own(one.group, turn.owner) for one in references)
    owner = await turn.live() if asked else turn.owner
    ours = [one for one in references if own(one.group, owner)]
    for one in ours:
        if rules := _referring(seen, one, turn.found.id):
            if await _call(turn, rules, egress=egress):
                return turn.hop(DELETE, f"revoked {len(rules)} rules of {one.group.id} that refer to it")
            return _unseen(turn, references)
    foreign = [one for one in references if one not in ours]
    if foreign and not turn.settings.revoke_foreign_rules:
        return not_ours(foreign, owner)
    rules = [rule for one in foreign for rule in _referring(seen, one, turn.found.id)]
    return await _foreign(turn, rules, egress=egress) if rules else _unseen(turn, references)


async def _foreign(turn: Turn, rules: Sequence[Rule], *, egress: bool) -> Verdict:
    if unkept := next((rule for rule in rules if rule.unkept), None):
        return Blocked(
            f"referred to by rule {unkept.rule} of {unkept.group}, not the cluster's own, which can't be written down "
            f"so that it could be made again: {unkept.unkept}; revoke it by hand",
            person=True,
        )
    trail = trail_of(turn.resume)
    # Word for word the one that was written down, or it is written down first: then a crash loses no rule.
    if recorded := next((rule for rule in rules if _digest(rule) == trail.written), None):
        await turn.clear()
        if not await _call(turn, [recorded], egress=egress):
            return _unseen(turn, turn.seen.references[turn.found.id])
        detail = f"revoked {recorded.rule} of {recorded.group}, which is not the cluster's"
        return turn.hop(DELETE, detail, kept=recorded.text)
    resume = Trail(vain=trail.vain, written=_digest(rules[0])).text
    detail = "revoking a rule that is not the cluster's"
    return turn.hop(revoking(egress=egress), detail, resume=resume, kept=rules[0].text)


def _referring(seen: Rules, reference: Reference, referred: str) -> list[Rule]:
    return [rule for rule in seen.rules.get(reference.group.id, ()) if rule.refers == referred]


def _digest(rule: Rule) -> str:
    return hashlib.sha256(rule.text.encode()).hexdigest()


def _unseen(turn: Turn, references: Sequence[Reference]) -> Verdict:
    """Groups are shown with rules that are not to be found, or are said to be gone. AWS may not have caught up yet."""
    words = named(references)
    if trail_of(turn.resume).vain < VAIN:
        return _in_vain(turn, f"there is no rule to revoke, although AWS shows {words}")
    return Blocked(
        f"AWS says that it is referred to by {words}, but no such rule is to be found by its id: look at that group, "
        f"and for references from peered VPCs and from other accounts that share this one",
        person=True,
    )


def _in_vain(turn: Turn, detail: str) -> Verdict:
    # Not at once: while a group is still shown with a rule that is gone, the way would lead back here.
    after = until_round(turn.settings.check_after, 0.5)
    vain = min(trail_of(turn.resume).vain + 1, VAIN)
    return turn.hop(DELETE, detail, after=after, resume=Trail(vain=vain).text)


async def _call(turn: Turn, rules: Sequence[Rule], *, egress: bool) -> bool:
    """Whether anything was revoked. Who calls this has cleared it."""
    operation = "revoke_security_group_egress" if egress else "revoke_security_group_ingress"
    try:
        await turn.calls.call(
            "ec2", operation, GroupId=rules[0].group, SecurityGroupRuleIds=[rule.rule for rule in rules]
        )
    except AwsError as error:
        # The other group went meanwhile, and its rules with it.
        if error.what != "gone" and error.code not in GONE:
            raise
        return False
    return True


def step(*, egress: bool) -> Step:
    return Step(act=partial(_revoke, egress=egress), look=partial(_look, egress=egress), reads=(GROUPS, RULES))
