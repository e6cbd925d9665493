"""Events of a run that the keys alone do not show: what was finished, claimed and counted."""

from collections import Counter
from dataclasses import dataclass, field

from tests.properties.shard_state import ShardState


@dataclass(slots=True)
class History:
    """`finished` holds each ended deletion's record as it was when it ended; `claims` until when a look set a lane
    aside; `full` when the lease of the latest take ends; `revived` what a planner began though its record was gone;
    `lost` the plans whose records a hand removed; `held` the deletions that were held and not planned since; `since`
    how each of them is held, and since when its record said so first; `found` the late targets' jobs by the job that
    found them."""

    cap: int
    finished: dict[str, dict[str, str]] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    full: dict[str, float] = field(default_factory=dict)
    revived: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    since: dict[str, tuple[str, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    found: dict[str, set[str]] = field(default_factory=dict)

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

    def forget(self, deletions: set[str]) -> None:
        """Their retention is over."""
        for deletion in deletions:
            self.finished.pop(deletion, None)
            # The first plan of the next deletion of that name may have the same number.
            self.found = {job: found for job, found in self.found.items() if job.rpartition("#")[0] != deletion}
