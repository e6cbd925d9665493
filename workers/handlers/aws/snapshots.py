"""A snapshot before a volume goes: one for each deletion, complete before the volume is touched.
It carries tags of ours and not the ownership tag: it is what a person keeps, and must outlive the cluster."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.contract import Blocked, Refused, Verdict
from workers.handlers.aws.model import Turn
from workers.handlers.aws.reading.ec2 import Item, matching, tags_of
from workers.handlers.aws.rounds import until_round

CREATE: Final = "ec2.CreateSnapshot"
DESCRIBE: Final = "ec2.DescribeSnapshots"
DELETE: Final = "ec2.DeleteVolume"

OF_VOLUME: Final = "knell.dev/volume"
OF_DELETION: Final = "knell.dev/deletion"
OF_CLUSTER: Final = "knell.dev/cluster-name"

UNSEEN: Final = 5
"""Looks after which a snapshot that is not shown is taken for removed."""


LASTS: Final = timedelta(hours=24)
"""So long a snapshot saves what a volume holds. A deletion may be held for weeks, and the volume used meanwhile."""


class Snapshot(msgspec.Struct, frozen=True):
    """`began` is the moment whose content it has, however long it took."""

    id: str
    state: str
    words: str
    began: datetime | None = None


Seen = dict[tuple[str, str], list[Snapshot]]
"""By volume and deletion: one that an earlier deletion left, before the volume was used again, saves nothing."""


def wanted(turn: Turn) -> bool:
    """By the plan, or by the settings as they are now: a snapshot too many does no harm."""
    return turn.owner.snapshot or turn.settings.snapshot_first


async def of_volumes(turns: Sequence[Turn]) -> Seen:
    volumes = sorted({turn.found.id for turn in turns if wanted(turn)})
    seen: Seen = {}
    if volumes:
        calls = turns[0].calls
        async for item in matching(calls, "describe_snapshots", "Snapshots", f"tag:{OF_VOLUME}", volumes):
            tags = tags_of(item)
            # Tags are anybody's to write; of which volume and whose a snapshot is, only AWS says.
            if item.get("VolumeId") == tags[OF_VOLUME] and item.get("OwnerId") == calls.account:
                seen.setdefault((tags[OF_VOLUME], tags.get(OF_DELETION, "")), []).append(_snapshot_of(item))
    return seen


def _snapshot_of(item: Item) -> Snapshot:
    state, words = item.get("State") or "", item.get("StateMessage") or ""
    return Snapshot(item["SnapshotId"], state, words, item.get("StartTime"))


def _latest(turn: Turn, *, outdated: bool = False) -> Snapshot | None:
    """A complete one that is not too old, else one on its way, else one that failed."""
    every: list[Snapshot] = turn.seen.get((turn.found.id, turn.job.deletion), [])
    found = [one for one in every if outdated or not _outdated(one)]
    order = {"completed": 0, "pending": 1}
    return min(found, key=lambda one: order.get(one.state, 2), default=None)


def _outdated(one: Snapshot) -> bool:
    """Of one that does not say when it began, nobody knows what it has."""
    return one.state == "completed" and (one.began is None or datetime.now(UTC) - one.began > LASTS)


async def saved(turn: Turn) -> Verdict | None:
    """Before the volume is deleted: None once its snapshot is complete."""
    latest = _latest(turn)
    if latest is None:
        return turn.hop(CREATE, "a snapshot comes first")
    return None if latest.state == "completed" else _not_yet(turn, latest)


async def make(turn: Turn) -> Verdict:
    """Looks first: a snapshot that was begun before a crash is the one that is waited for."""
    if not wanted(turn):
        return turn.hop(DELETE, "no snapshot is wanted")
    latest = _latest(turn)
    if latest is not None:
        return _not_yet(turn, latest)
    if turn.found.state == "in-use":
        return Blocked(f"attached to instance {', '.join(turn.found.facts) or 'unknown'}")
    await turn.clear()
    tags = {OF_VOLUME: turn.found.id, OF_DELETION: turn.job.deletion, OF_CLUSTER: turn.owner.name}
    answer = await turn.calls.call(
        "ec2", "create_snapshot", VolumeId=turn.found.id,
        Description=f"{turn.found.id} of cluster {turn.owner.name}, before it was removed"[:255],
        TagSpecifications=[
            {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )  # fmt: skip
    made: str = answer["SnapshotId"]
    after = until_round(turn.settings.check_after, 0.5)
    return turn.hop(DESCRIBE, f"snapshot {made} is being made", after=after, resume=made)


async def wait(turn: Turn) -> Verdict:
    # Whether it is too old by now is asked before the volume goes.
    latest = _latest(turn, outdated=True)
    if latest is not None:
        return _not_yet(turn, latest)
    # AWS may show a new one late; only one that stays unseen was removed by somebody, and is made again.
    if turn.resume and turn.job.record.waits < UNSEEN:
        return Blocked(f"snapshot {turn.resume} is not to be seen yet")
    return turn.hop(CREATE, "its snapshot is gone")


def _not_yet(turn: Turn, latest: Snapshot) -> Verdict:
    match latest.state:
        case "completed":
            return turn.hop(DELETE, f"snapshot {latest.id} is complete")
        case "pending":
            after = until_round(turn.settings.check_after, 0.5)
            return turn.hop(DESCRIBE, f"snapshot {latest.id} is being made", after=after, resume=latest.id)
        case _:
            return Refused(
                f"snapshot {latest.id} of {turn.found.id} is {latest.state}: {latest.words or 'AWS does not say why'}; "
                f"delete that snapshot to have another one made"
            )
