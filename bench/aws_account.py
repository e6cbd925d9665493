"""AWS account of one turn: when resources were removed and interfaces drained, and how many calls failed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from bench.cloud_standin import CloudStandin
from bench.order import Finding
from standins.aws import AwsBehaviour, AwsFault, AwsJournalEntry, LocalAws

NUMBER: Final = "111122223333"
REGION: Final = "eu-central-1"
_DELETES: Final = ".Delete"
_THROTTLED: Final = frozenset({"Throttling", "ThrottledException", "ThrottlingException", "RequestLimitExceeded"})
_CLOUD_CONTROL: Final = "cloudcontrol."
_NO_TAGGING: Final = AwsFault(what="close", action="tagging.*")


def is_throttled(entry: AwsJournalEntry) -> bool:
    return entry.code in _THROTTLED


class BenchAccount(CloudStandin):
    number = NUMBER
    region = REGION

    def __init__(self, scale: float, *, finding: Finding = "tagging", buckets: bool = True) -> None:
        """With `describe` there is no tagging API."""
        # What is deleted is gone from the tagging API's lists at once, as it was when the peer's own code was run.
        self._aws = LocalAws(
            AwsBehaviour(
                buckets=buckets, drain=0.0, deleted_listed=0.0, faults=() if finding == "tagging" else (_NO_TAGGING,)
            ),
            rate=scale,
        )
        super().__init__(self._aws, scale)
        self.removed: dict[str, AwsJournalEntry] = {}
        """By what it named: the first deletion of it that succeeded."""
        self.drained: dict[str, float] = {}
        """By security group: when the last interface that had it was gone, in the account's time."""
        self.cloud_control: list[AwsJournalEntry] = []
        """Calls to Cloud Control, as they came, whatever became of them."""
        self.ended: set[str] = set()
        """Identifiers of resources that Cloud Control has deleted."""

    @property
    def credentials(self) -> dict[str, str]:
        """What a process finds in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": f"AKIA{NUMBER}",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def let_drain(self, seconds: Mapping[str, float], *, unseen: bool = False) -> None:
        """For how long balancers' interfaces outlive them, by the balancers' names; of others not at all."""
        self.behave(drains=dict(seconds), drains_unseen=unseen)

    def look(self) -> None:
        """Reads what has happened since the last look."""
        for entry in asyncio.run(self._news()):
            self._read = entry.number + 1
            if entry.what == "drained":
                self.drained.update(dict.fromkeys(entry.ids[1:], entry.at))
            elif entry.what == "ended":
                self.ended.update(() if entry.code else entry.ids[1:])
            elif not entry.setup:
                self._count(entry)

    def gone(self, ids: Collection[str]) -> bool:
        """Whether all of them were deleted."""
        self.look()
        return all(one in self.removed for one in ids)

    async def _news(self) -> list[AwsJournalEntry]:
        # Drained interfaces are removed at the next request.
        await self._aws.now()
        return await self._aws.journal(self._read)

    def _count(self, entry: AwsJournalEntry) -> None:
        self.calls += 1
        self.refused += is_throttled(entry)
        if entry.action.startswith(_CLOUD_CONTROL):
            self.cloud_control.append(entry)
        if entry.status == 200 and _DELETES in entry.action:
            for one in entry.ids:
                self.removed.setdefault(one, entry)
