"""How deletions ended: with everything removed, or with something that stays by somebody's word.
Who looks for orphans must know the second kind: what a person left behind has no owner either."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import Event
from service.engine.installation import Installation
from service.engine.inventory import Inventory

FINAL: Final = frozenset({"done", "dropped"})
_FIELDS: Final = ("state", "policy", "withdrawn", "abandoned", "given_up")


class Ending(NamedTuple):
    """`state` is empty where there is no record. `kept` is why something stays, empty where nothing was left by a
    decision: then all is removed, or something still speaks for it."""

    state: str
    kept: str = ""


async def endings(installation: Installation, deletions: Sequence[str]) -> list[Ending]:
    """In their order; of one that has not ended `kept` is what is decided so far."""
    by_shard: dict[int, list[int]] = {}
    for place, deletion in enumerate(deletions):
        by_shard.setdefault(installation.keys.shard_of(deletion), []).append(place)
    found = [Ending("")] * len(deletions)
    for shard, places in by_shard.items():
        rows = await installation.shards[shard].recall([deletions[place] for place in places], _FIELDS)
        for place, row in zip(places, rows, strict=True):
            found[place] = Ending(row[0], kept_of(*row))
    return found


async def dropped_before(installation: Installation, event: Event) -> str:
    """Why nothing of an object is to go whose deletion a person dropped; empty where that did not happen. The record of
    the round before tells it, and after that has expired the source's inventory. Of an orphan's name nothing follows
    from that: another resource may have it by now."""
    if event.reason == "orphan":
        return ""
    dropped = await Inventory(installation, event.source).was_dropped(event.uid)
    if not dropped and event.round > 1:
        before = msgspec.structs.replace(event, round=event.round - 1).deletion
        ((state, withdrawn),) = await installation.shard_of(before).recall([before], ("state", "withdrawn"))
        dropped = state == "dropped" and not withdrawn
    return "a person dropped its deletion (`knell held drop`)" if dropped else ""


def kept_of(state: str, policy: str, withdrawn: str, abandoned: str, given_up: str = "") -> str:
    """Why something stays, by the fields of a deletion's record; empty where nothing was left by a decision."""
    said = next((words for words in (withdrawn, policy) if words.startswith("retain: ")), "")
    if said or withdrawn:
        # Withdrawn for another reason: something has its name, and speaks for it.
        return said
    if state == "dropped":
        return "dropped: a person gave its deletion up"
    if _count(abandoned) or _count(given_up):
        return "left: a part of its deletion was abandoned or given up"
    return ""


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
