"""Verdicts: the results of an attempt.

Handlers return nothing else; an exception means that the attempt failed for an unknown reason.
"""

from datetime import timedelta
from typing import Final

import msgspec

from service.contract.targets import Target

LONGEST_KEPT: Final = 8_000
"""Maximum size in bytes of the text that a verdict has recorded verbatim."""


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """A read of this attempt shows that the target does not exist. With `absent` it was never seen: the plan named it
    without a read, and it does not count as a resource."""

    detail: str = ""
    absent: bool = False


class Pending(msgspec.Struct, frozen=True, tag="check"):
    """Accepted but not proven: check again after `check_after`, possibly in another lane, with `resume` as data.

    With `still` only the response is late: a job that was held or waiting stays so for the same reason. `kept` is added
    to the audit and the log verbatim or not at all: where it is too long or contains a credential, the attempt
    fails."""

    check_after: timedelta
    detail: str = ""
    lane: str | None = None
    resume: str = ""
    kept: str = ""
    still: bool = False


class Throttled(msgspec.Struct, frozen=True, tag="throttled"):
    """The provider throttled the call. It spends no attempt, and the budget has been corrected. With `unasked` no call
    was made, because the budget had no tokens."""

    retry_after: timedelta | None = None
    detail: str = ""
    unasked: bool = False


class Blocked(msgspec.Struct, frozen=True, tag="blocked"):
    """Something still uses the target. `until` is exact where the provider names a time. `unseen` says that no read
    shows the dependency: most likely it was deleted just now, so the target is tried again soon for a while. The job
    waits, unless it needs a `person`: then it is held and checked just as often."""

    by: str
    until: timedelta | None = None
    unseen: bool = False
    person: bool = False


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Not owned, protected, or denied: an operator must act."""

    reason: str


class Left(msgspec.Struct, frozen=True, tag="left"):
    """The resource exists and is to be kept by now: its job ends as given up, and its object is released without it.
    Only based on a read of the live object in this attempt."""

    reason: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """More targets of the deletion, which the plan does not have. They are removed before this job is tried again, with
    `resume` as its data. Only a job in the chain `finally` may find targets, and they belong to that chain, too; their
    stages order them among themselves. Targets that the deletion has already are not added again."""

    targets: tuple[Target, ...]
    detail: str = ""
    resume: str = ""


Verdict = Gone | Pending | Throttled | Blocked | Refused | Left | Found
