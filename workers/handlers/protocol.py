"""Protocols between the runtime and handlers, planners and consent.

Handlers return verdicts and planners return plans; they never ack or wait for a retry, and know nothing of Redis.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from service.contract import Draw, Event, Feedback, Hold, Job, Plan, Verdict
from workers.handlers.lane_meter import LaneMeter

RECHECK_AFTER: Final = 30_000
"""Longest time in milliseconds until an objection is checked again that may pass without a watch event: a pause, a
namesake that is deleted, an identity that is repaired."""


class NotCleared(Exception):
    """A destructive call is not allowed now: paused, the lease is ending, or the job was taken back. The job is handed
    back.

    With `refused` the live object or its policy forbids it for one deletion: its jobs are shown as held, with the
    reason, and are tried again with backoff, after `wait_ms` at the latest if given. With `waits` it passes without a
    person: they are shown as waiting.
    """

    def __init__(
        self, reason: str, wait_ms: int = 0, *, refused: bool = False, waits: bool = False, deletion: str = ""
    ) -> None:
        super().__init__(reason)
        self.wait_ms, self.refused, self.waits, self.deletion = wait_ms, refused, waits, deletion


class Batch(Protocol):
    """Jobs of one lane that were taken together."""

    @property
    def lane(self) -> str: ...

    @property
    def jobs(self) -> Sequence[Job]: ...

    async def clear(self, *jobs: Job) -> None:
        """Clearance: to be awaited right before a destructive call. Raises NotCleared."""

    def report_quota(self, feedback: Feedback) -> None:
        """Reports what a response said about a limit; at most once for each call that draws on it."""

    @property
    def meter(self) -> LaneMeter:
        """Counts calls against what the batch reserved. A handler that uses it counts every call: what is left in the
        end goes back."""

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        """Returns tokens of a call that was not needed, for handlers that do not use the meter."""


class Handler(Protocol):
    """Removes targets of one kind."""

    @property
    def kind(self) -> str: ...

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """What each job of the lane draws on, or None if the lane is not this handler's."""

    def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        """Yields each job's verdict as soon as it is known; an exception is a failed attempt."""


class Planner(Protocol):
    """Determines the targets of an event's object; reads only."""

    async def plan(self, event: Event) -> Plan | Hold: ...


class Consent(Protocol):
    """Checks right before a destructive call whether the object and its policy still allow it."""

    async def objection(self, deletion: str) -> Exception | None:
        """NotCleared, or the error that kept it from being checked; None if the call is allowed. Deletions neither wait
        for one another nor fail together."""


class JobStatusListener(Protocol):
    """Receives which jobs are held or wait, for Events and conditions. Returns at once and never raises."""

    def status_changed(self, job: str) -> None:
        """A job is held or waiting, or was until now."""

    async def run(self) -> None:
        """Runs for ever."""

    async def drained(self) -> None:
        """Wait until all queued reports are written."""
