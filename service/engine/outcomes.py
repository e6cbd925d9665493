"""Outcomes of deletions: everything removed, or resources kept by a decision.
Sweeps read them, because a resource that was kept on purpose has no owner either and must not count as an orphan."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import Event
from service.engine.installation import Installation
from service.engine.inventory import Inventory

FINAL: Final = frozenset({"done", "dropped"})
_FIELDS: Final = ("state", "policy", "withdrawn", "abandoned", "given_up")


class DeletionOutcome(NamedTuple):
    """`state` is empty where there is no record. `kept` is the reason why resources stay, empty where no decision keeps
    them."""

    state: str
    kept: str = ""


async def deletion_outcomes(installation: Installation, deletions: Sequence[str]) -> list[DeletionOutcome]:
    """Outcomes in the order of `deletions`; for a deletion that has not ended `kept` is the decision so far."""
    by_shard: dict[int, list[int]] = {}
    for place, deletion in enumerate(deletions):
        by_shard.setdefault(installation.keys.shard_of(deletion), []).append(place)
    found = [DeletionOutcome("")] * len(deletions)
    for shard, places in by_shard.items():
        rows = await installation.shards[shard].read_deletions([deletions[place] for place in places], _FIELDS)
        for place, row in zip(places, rows, strict=True):
            found[place] = DeletionOutcome(row[0], retained_reason(*row))
    return found


async def dropped_reason(installation: Installation, event: Event) -> str:
    """Why the resources of an object stay whose earlier deletion an operator dropped; empty where none was dropped. It
    is read from the record of the previous round and, after that has expired, from the source's inventory. Orphans are
    never affected: another resource may have the name by now."""
    if event.reason == "orphan":
        return ""
    dropped = await Inventory(installation, event.source).was_dropped(event.uid)
    if not dropped and event.round > 1:
        before = msgspec.structs.replace(event, round=event.round - 1).deletion
        ((state, withdrawn),) = await installation.shard_of(before).read_deletions([before], ("state", "withdrawn"))
        dropped = state == "dropped" and not withdrawn
    return "an operator dropped its deletion (`knell held drop`)" if dropped else ""


def retained_reason(state: str, policy: str, withdrawn: str, abandoned: str, given_up: str = "") -> str:
    """Why resources stay, from the fields of a deletion's record; empty where no decision keeps them."""
    said = next((words for words in (withdrawn, policy) if words.startswith("retain: ")), "")
    if said or withdrawn:
        # Withdrawn for another reason, such as another live object with the same name.
        return said
    if state == "dropped":
        return "dropped: an operator dropped its deletion"
    if _count(abandoned) or _count(given_up):
        return "left: a part of its deletion was abandoned or given up"
    return ""


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
