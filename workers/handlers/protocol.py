"""What a handler and a planner are: any object that fits these shapes.

They read and act on the outside world and answer with verdicts or plans; they never ack, sleep or know Redis.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

from service.contract import Draw, Event, Feedback, Hold, Job, Plan, Verdict

OBJECTED: Final = 30_000
"""Milliseconds after which, at the latest, something is asked for again that stood against a call and may pass by
itself: a pause, a namesake that goes, an identity that is mended. Nobody tells us of those."""


class NotCleared(Exception):
    """The way is not free: paused, the lease is ending, or the job was taken back. The job is handed back.

    With `refused` the live object or its policy forbids it for one deletion: its jobs are shown as held, with the
    reason, and ask again later and later, but after `wait_ms` at the latest, where that is given. With `waits` it needs
    no person: they are shown as waiting.
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
        """To be awaited right before a destructive call; raises NotCleared."""

    def tell(self, feedback: Feedback) -> None:
        """What an answer said about a limit: once for each call that draws on it, if at all."""

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        """Tokens that were reserved for a call that was not needed; less than none for a call that was made for a job
        which is handed back."""


class Handler(Protocol):
    """Removes targets of one kind."""

    @property
    def kind(self) -> str: ...

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """What each job of the lane draws on, or None where the lane is not this handler's."""

    def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        """Yield each job's verdict as soon as it is known; an exception stands for an attempt that failed."""


class Planner(Protocol):
    """Says which targets an event's object owns; reads only."""

    async def plan(self, event: Event) -> Plan | Hold: ...


class Consent(Protocol):
    """Says, right before a destructive call, what stands against it at the object and its policy."""

    async def objection(self, deletion: str) -> Exception | None:
        """NotCleared, or what kept us from finding out; None where nothing does. Whatever becomes of one deletion, the
        answer for another neither waits for it nor fails with it."""


class Listener(Protocol):
    """Receives which jobs are held or wait, for Events and conditions. Returns at once and never raises."""

    def heard(self, job: str) -> None:
        """A job is held or waits, or did so until now."""

    async def run(self) -> None:
        """Goes on for ever."""

    async def drained(self) -> None:
        """Wait until everything heard so far is told."""
