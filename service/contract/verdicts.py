"""Verdicts: what one attempt found.

Handlers return them and nothing else; an exception means that the attempt failed for a reason unknown.
"""

from datetime import timedelta
from typing import Final

import msgspec

LONGEST_KEPT: Final = 8_000
"""Bytes that a verdict may have kept word for word: a line of a log, and no more than Redis and readers bear."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """A read made in this attempt says that the target does not exist. With `absent` it was never seen to be there: a
    plan named it without having seen it, and it counts as no resource."""

    detail: str = ""
    absent: bool = False


class Pending(msgspec.Struct, frozen=True, tag="check"):
    """Accepted, not proven: look again after `check_after`, perhaps in another lane, with `resume` at hand.

    With `still` only the answer is late: a job that was held or waited goes on to do so, for the same reason.
    `kept` goes into the audit and the log behind the detail, word for word or not at all: where it is too long, or has
    something that must not be shown, the attempt has failed."""

    check_after: timedelta
    detail: str = ""
    lane: str | None = None
    resume: str = ""
    kept: str = ""
    still: bool = False


class Throttled(msgspec.Struct, frozen=True, tag="throttled"):
    """The provider refused for want of quota. It spends no attempt; the budget has been told. With `unasked` it was
    the budget that had nothing left, and the provider has said nothing."""

    retry_after: timedelta | None = None
    detail: str = ""
    unasked: bool = False


class Blocked(msgspec.Struct, frozen=True, tag="blocked"):
    """Something still uses the target. `until` is exact where the provider names a time. `unseen` says that no read
    shows what it is: most likely something that went just now, so the target is tried again soon while that can be. It
    goes by itself, unless it takes a `person`: then the job is held, and looked at as often all the same."""

    by: str
    until: timedelta | None = None
    unseen: bool = False
    person: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Not ours, protected, or denied: a person must look."""

    reason: str


class Left(msgspec.Struct, frozen=True, tag="left"):
    """It is there, and by now nobody wants it removed: its job ends as given up, and its object goes without it. Only
    for what was asked of the live object in this attempt."""

    reason: str


Verdict = Gone | Pending | Throttled | Blocked | Refused | Left
