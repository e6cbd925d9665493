"""Age limit of the evidence that a destructive call rests on, the same for every provider.
Consent may take long: when it arrives too late, nothing is sent, and the next attempt reads everything again."""

import time
from datetime import timedelta
from typing import Final

from service.contract import Blocked, Job
from workers.handlers.protocol import Batch

FRESH: Final = timedelta(seconds=5)
"""How old the reading of a resource may be when its delete is sent."""


def now() -> float:
    """The clock by which reads are dated."""
    return time.monotonic()


class Outdated(Exception):
    """Consent arrived after the evidence had expired. Nothing was sent."""


def fresh_until(read: float) -> float:
    """Until when evidence counts that was read at that moment of the monotonic clock."""
    return read + FRESH.total_seconds()


def is_aging(read: float) -> bool:
    """Whether evidence is too old to ask for consent with: half of its time is left for that."""
    return now() > read + FRESH.total_seconds() / 2


async def clear_until(batch: Batch, job: Job, until: float) -> None:
    """Consent for one destructive call that is sent right afterwards, on evidence that counts until then. Raises
    NotCleared and Outdated."""
    await batch.clear(job)
    if now() > until:
        raise Outdated("answers of its cluster that take so long that what was read of it before has grown old")


def comes_again(outdated: Outdated) -> Blocked:
    """Soon at first, then later and later while it stays so; no attempt is spent."""
    return Blocked(str(outdated))
