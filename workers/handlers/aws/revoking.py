"""Rules that refer to a group which is to go, revoked by their ids: those of the owner's own groups at once.
Those of foreign groups go one at a time, and each only after what it was has been written down."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from service.contract import Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.groups import DELETE, GROUPS, Reference, ids_of, own, references_to, revoking
from workers.handlers.aws.model import Step, Turn
from workers.handlers.aws.reading.ec2 import Item, matching
from workers.handlers.aws.rounds import until_round

RULES: Final = "ec2.DescribeSecurityGroupRules"
GONE: Final = frozenset({"InvalidPermission.NotFound", "InvalidSecurityGroupRuleId.NotFound"})
_LONGEST: Final = 255


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
    )


async def _revoke(turn: Turn, *, egress: bool) -> Verdict:
    seen: Rules = turn.seen
    references = seen.references.get(turn.found.id, [])
    ours = [one.group.id for one in references if own(one.group, turn.owner)]
    foreign = [one.group.id for one in references if one.group.id not in ours]
    for group in ours:
        if rules := _referring(seen, group, turn.found.id):
            await _call(turn, rules, egress=egress)
            return turn.hop(DELETE, f"revoked {len(rules)} rules of {group} that refer to it")
    rules = [rule for group in foreign for rule in _referring(seen, group, turn.found.id)]
    if not rules or not turn.settings.revoke_foreign_rules:
        # Not at once: while a group is still shown with a rule that is gone, the way would lead back here.
        after = until_round(turn.settings.check_after, 0.5)
        return turn.hop(DELETE, "there is no rule to revoke", after=after)
    # Word for word the one that was written down, or it is written down first: then a crash loses no rule.
    if recorded := next((rule for rule in rules if _written(rule) == turn.resume), None):
        await _call(turn, [recorded], egress=egress)
        return turn.hop(DELETE, f"revoked {recorded.rule} of {recorded.group}, which is not the cluster's")
    rule = _written(rules[0])
    return turn.hop(revoking(egress=egress), f"revoking a rule that is not the cluster's: {rule}", resume=rule)


def _referring(seen: Rules, group: str, referred: str) -> list[Rule]:
    return [rule for rule in seen.rules.get(group, ()) if rule.refers == referred]


def _written(rule: Rule) -> str:
    """Short enough to be kept whole wherever a verdict's words are kept."""
    return msgspec.json.encode(msgspec.structs.replace(rule, description=rule.description[:_LONGEST])).decode()


async def _call(turn: Turn, rules: Sequence[Rule], *, egress: bool) -> None:
    await turn.clear()
    operation = "revoke_security_group_egress" if egress else "revoke_security_group_ingress"
    try:
        await turn.calls.call(
            "ec2", operation, GroupId=rules[0].group, SecurityGroupRuleIds=[rule.rule for rule in rules]
        )
    except AwsError as error:
        # The other group went meanwhile, and its rules with it.
        if error.what != "gone" and error.code not in GONE:
            raise


def step(*, egress: bool) -> Step:
    return Step(act=partial(_revoke, egress=egress), look=partial(_look, egress=egress), reads=(GROUPS, RULES))
