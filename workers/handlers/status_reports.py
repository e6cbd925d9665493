"""Status report about a deletion, for a Kubernetes Event and condition: a reason and a message.
Planner, consent and release pass it to a `ReportStatus` function, which returns at once."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from service.kubernetes import KubeObject
from workers.handlers.collector import ObjectRef

Reason = Literal[
    "CleanupStarted",
    "CleanupWaiting",
    "CleanupHeld",
    "CleanupPaused",
    "ResourcesRetained",
    "ConsentWithdrawn",
    "CleanupDone",
]
DONE: Final = "CleanupDone"
WARNINGS: Final[frozenset[Reason]] = frozenset({"CleanupHeld", "ConsentWithdrawn"})


class StatusReport(msgspec.Struct, frozen=True):
    """`live` is the object as just read, if available. `stable_message` is the message without parts that change all
    the time, such as the time of the next try. Without `event` only the condition is written. A report made
    `from_records` is read again before it is written."""

    ref: ObjectRef
    reason: Reason
    message: str
    live: KubeObject | None = None
    stable_message: str = ""
    event: bool = True
    from_records: bool = False


ReportStatus = Callable[[StatusReport], None]


def no_report(note: StatusReport) -> None:
    """Reports nothing; used when Events and conditions are off."""
    del note
