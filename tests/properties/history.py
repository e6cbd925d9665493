"""Events of a run that the keys alone do not show: what was finished, claimed and counted."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from service.engine.late_targets import LateBounds
from tests.properties.shard_state import ShardState, StoredAppend


class LateCount(NamedTuple):
    """Late targets and their stages, as the record of a deletion counts them."""

    targets: int
    stages: int


def late_count(record: dict[str, str]) -> LateCount:
    return LateCount(int(record.get("late", 0)), int(record.get("late_stages", 0)))


@dataclass(slots=True)
class History:
    """`finished` holds each ended deletion's record as it was when it ended; `claims` until when a look set a lane
    aside; `full` when the lease of the latest take ends; `revived` what a planner began though its record was gone;
    `lost` the plans whose records a hand removed; `held` the deletions that were held and not planned since; `since`
    how each of them is held, and since when its record said so first; `found` the late targets' jobs by the job that
    found them; `bounds` the most that the deletions take late; `appending` the appends that are under way; `disturbed`
    the deletions of those that were ended or changed by anybody else; `withdrawn` the plans that were withdrawn, with
    the late targets and stages that they had."""

    cap: int
    bounds: LateBounds
    finished: dict[str, dict[str, str]] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    full: dict[str, float] = field(default_factory=dict)
    revived: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    since: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    found: dict[str, set[str]] = field(default_factory=dict)
    appending: dict[str, StoredAppend] = field(default_factory=dict)
    disturbed: set[str] = field(default_factory=set)
    withdrawn: dict[str, LateCount] = field(default_factory=dict)

    def learn(self, shard: ShardState) -> None:
        for deletion, record in shard.deletions.items():
            if record.get("state") in ("done", "dropped") and deletion not in self.finished:
                self.finished[deletion] = record
                self.counts["done"] += record["state"] == "done"
            if record.get("state") in ("held", "waiting"):
                self.held.add(deletion)
                kind, since = record.get("held_as", ""), record.get("held_since", "")
                if self.since.get(deletion, ("", ""))[0] != kind:
                    self.since[deletion] = kind, since
            elif record.get("state") != "published":
                self.held.discard(deletion)
            if "held_since" not in record:
                self.since.pop(deletion, None)
        self._learn_late(shard)

    def _learn_late(self, shard: ShardState) -> None:
        for deletion, then in self.appending.items():
            running = shard.deletions.get(deletion, {}).get("state") == "running"
            if running and shard.is_under_way(then) and shard.unfinished_append(deletion) != then:
                self.disturbed.add(deletion)
        now = {deletion: shard.unfinished_append(deletion) for deletion in shard.deletions}
        self.appending = {deletion: one for deletion, one in now.items() if one and shard.is_under_way(one)}
        for deletion, record in shard.planned.items():
            if "withdrawn" in record:
                self.withdrawn.setdefault(f"{deletion}#{record['plan']}", late_count(record))

    def forget(self, deletions: set[str]) -> None:
        """Their retention is over."""
        for deletion in deletions:
            self.finished.pop(deletion, None)
            self.withdrawn = {
                plan: late for plan, late in self.withdrawn.items() if plan.rpartition("#")[0] != deletion
            }
            # The first plan of the next deletion of that name may have the same number.
            self.found = {job: found for job, found in self.found.items() if job.rpartition("#")[0] != deletion}
