"""Snapshot of a volume before its deletion: one per deletion, complete before the volume is deleted. It carries our own
tags, not the ownership tag, because it must outlive the owner."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.kinds.declaration import AwsAttempt
from workers.providers.aws.reading.ec2 import Item, matching, tags_of

CREATE: Final = "ec2.CreateSnapshot"
DESCRIBE: Final = "ec2.DescribeSnapshots"
DELETE: Final = "ec2.DeleteVolume"

VOLUME_TAG: Final = "knell.dev/volume"
DELETION_TAG: Final = "knell.dev/deletion"

MAX_UNSEEN: Final = 5
"""Reads after which a snapshot that is not listed counts as removed."""


MAX_AGE: Final = timedelta(hours=24)
"""How old a snapshot may be. A deletion may be held for weeks, and the volume used meanwhile."""


class VolumeSnapshot(msgspec.Struct, frozen=True):
    """`began` is the moment of its content, however long it took to complete."""

    id: str
    state: str
    words: str
    began: datetime | None = None


SnapshotsByVolume = dict[tuple[str, str], list[VolumeSnapshot]]
"""By volume and deletion: a snapshot of an earlier deletion may be older than the volume's last use."""


def is_wanted(attempt: AwsAttempt) -> bool:
    """By the plan or by the current settings: an extra snapshot does no harm."""
    return attempt.claim.snapshot or attempt.settings.snapshot_first


async def find_snapshots(attempts: Sequence[AwsAttempt]) -> SnapshotsByVolume:
    volumes = sorted({attempt.resource.id for attempt in attempts if is_wanted(attempt)})
    seen: SnapshotsByVolume = {}
    if volumes:
        client = attempts[0].client
        async for item in matching(client, "describe_snapshots", "Snapshots", f"tag:{VOLUME_TAG}", volumes):
            tags = tags_of(item)
            # Anyone can write tags; the volume and the owner of a snapshot are reported by AWS.
            if item.get("VolumeId") == tags[VOLUME_TAG] and item.get("OwnerId") == client.account:
                seen.setdefault((tags[VOLUME_TAG], tags.get(DELETION_TAG, "")), []).append(_parse_snapshot(item))
    return seen


def _parse_snapshot(item: Item) -> VolumeSnapshot:
    state, words = item.get("State") or "", item.get("StateMessage") or ""
    return VolumeSnapshot(item["SnapshotId"], state, words, item.get("StartTime"))


def _latest(attempt: AwsAttempt, *, outdated: bool = False) -> VolumeSnapshot | None:
    """A complete one that is recent enough, else a pending one, else a failed one."""
    every: list[VolumeSnapshot] = attempt.looked_up.get((attempt.resource.id, attempt.job.deletion), [])
    found = [one for one in every if outdated or not _outdated(one)]
    order = {"completed": 0, "pending": 1}
    return min(found, key=lambda one: order.get(one.state, 2), default=None)


def _outdated(one: VolumeSnapshot) -> bool:
    """A complete snapshot without a start time counts as outdated."""
    return one.state == "completed" and (one.began is None or datetime.now(UTC) - one.began > MAX_AGE)


async def require_snapshot(attempt: AwsAttempt) -> Verdict | None:
    """None once the snapshot is complete; else the verdict to wait for it."""
    latest = _latest(attempt)
    if latest is None:
        return attempt.move_to(CREATE, "a snapshot comes first")
    return None if latest.state == "completed" else _verdict_for(attempt, latest)


async def create_snapshot(attempt: AwsAttempt) -> Verdict:
    """Reads first: a snapshot begun before a crash is the one to wait for."""
    if not is_wanted(attempt):
        return attempt.move_to(DELETE, "no snapshot is wanted")
    latest = _latest(attempt)
    if latest is not None:
        return _verdict_for(attempt, latest)
    if attempt.resource.state == "in-use":
        return Blocked(f"attached to instance {', '.join(attempt.resource.facts) or 'unknown'}")
    await attempt.clear()
    volume, owner = attempt.resource.id, attempt.judge.label(attempt.claim)
    tags = {**attempt.judge.snapshot_tags(attempt.claim), VOLUME_TAG: volume, DELETION_TAG: attempt.job.deletion}
    answer = await attempt.client.call(
        "ec2", "create_snapshot", VolumeId=volume,
        Description=f"{volume} of {owner}, before it was removed"[:255],
        TagSpecifications=[
            {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )  # fmt: skip
    made: str = answer["SnapshotId"]
    after = aligned_delay(attempt.settings.check_after, 0.5)
    return attempt.move_to(DESCRIBE, f"snapshot {made} is being made", after=after, resume=made)


async def wait_for_snapshot(attempt: AwsAttempt) -> Verdict:
    # Its age is checked before the volume is deleted.
    latest = _latest(attempt, outdated=True)
    if latest is not None:
        return _verdict_for(attempt, latest)
    # AWS may list a new snapshot late; only one that stays unlisted was removed, and is created again.
    if attempt.resume and attempt.job.record.waits < MAX_UNSEEN:
        return Blocked(f"snapshot {attempt.resume} is not visible yet")
    return attempt.move_to(CREATE, "its snapshot is gone")


def _verdict_for(attempt: AwsAttempt, latest: VolumeSnapshot) -> Verdict:
    match latest.state:
        case "completed":
            return attempt.move_to(DELETE, f"snapshot {latest.id} is complete")
        case "pending":
            after = aligned_delay(attempt.settings.check_after, 0.5)
            return attempt.move_to(DESCRIBE, f"snapshot {latest.id} is being made", after=after, resume=latest.id)
        case _:
            return Refused(
                f"snapshot {latest.id} of {attempt.resource.id} is {latest.state}: "
                f"{latest.words or 'AWS does not say why'}; delete that snapshot to have another one made"
            )
