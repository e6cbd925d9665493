"""One AWS account for one turn: the stand-in in a process of its own, with its time and its token buckets.

What became of every call is read from its journal, so that all who are measured there are counted alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Final, Self

from bench.order import Finding
from service.local.aws import Behaviour, Entry, Fault, LocalAws

NUMBER: Final = "111122223333"
REGION: Final = "eu-central-1"
_DELETES: Final = ".Delete"
_THROTTLED: Final = frozenset({"Throttling", "ThrottledException", "RequestLimitExceeded"})
_NO_TAGGING: Final = Fault(what="close", action="tagging.*")


class Account:
    """Its methods block. What the harness makes there draws on no bucket and is not counted."""

    number = NUMBER
    region = REGION

    def __init__(self, scale: float, *, finding: Finding = "tagging", buckets: bool = True) -> None:
        """With `describe` there is no tagging API."""
        self.scale = scale
        # What is deleted is gone from the tagging API's lists at once, as it was when the peer's own code was run.
        self._aws = LocalAws(
            Behaviour(buckets=buckets, drain=0.0, ghosts=0.0, faults=() if finding == "tagging" else (_NO_TAGGING,)),
            rate=scale,
        )
        self.calls = 0
        self.refused = 0
        self.removed: dict[str, Entry] = {}
        """By what it named: the first deletion of it that succeeded."""
        self.drained: dict[str, float] = {}
        """By security group: when the last interface that had it was gone, in the account's time."""
        self._read = 0

    def __enter__(self) -> Self:
        self._aws.launch()
        try:
            asyncio.run(self._aws.wait_until_ready())
        except BaseException:
            self._aws.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._aws.stop()

    @property
    def address(self) -> str:
        return self._aws.address

    @property
    def credentials(self) -> dict[str, str]:
        """What a process finds in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": f"AKIA{NUMBER}",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def now(self) -> float:
        """The account's time, in seconds."""
        return asyncio.run(self._aws.now())

    def let_drain(self, seconds: Mapping[str, float]) -> None:
        """For how long balancers' interfaces outlive them, by the balancers' names; of others not at all."""
        self.behave(drains=dict(seconds))

    def behave(self, **changes: Any) -> None:
        """Changes fields of the stand-in's behaviour."""
        asyncio.run(self._aws.behave(**changes))

    def look(self) -> None:
        """Reads what has happened since the last look."""
        for entry in asyncio.run(self._news()):
            self._read = entry.number + 1
            if entry.what == "drained":
                self.drained.update(dict.fromkeys(entry.ids[1:], entry.at))
            elif not entry.setup:
                self._count(entry)

    def gone(self, ids: Collection[str]) -> bool:
        """Whether all of them were deleted."""
        self.look()
        return all(one in self.removed for one in ids)

    async def _news(self) -> list[Entry]:
        # Interfaces whose time has come go when somebody asks for something.
        await self._aws.now()
        return await self._aws.journal(self._read)

    def _count(self, entry: Entry) -> None:
        self.calls += 1
        self.refused += entry.code in _THROTTLED
        if entry.status == 200 and _DELETES in entry.action:
            for one in entry.ids:
                self.removed.setdefault(one, entry)
