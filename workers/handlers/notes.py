"""What is to be told to an object's owner, in the words of Kubernetes: a reason, a sentence, good or bad.
Whoever has something to tell hands it over and goes on; whether, when and how it is told is no concern of his."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from service.kubernetes import Live
from workers.handlers.objects import About

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


class Note(msgspec.Struct, frozen=True):
    """`live` is the object as it was read just now, where it is at hand. `same` is the message without what changes all
    the time, such as when something is tried again. Without `event` it is news for the condition only. One that was
    `looked` up in the records is looked up again when its turn comes."""

    about: About
    reason: Reason
    message: str
    live: Live | None = None
    same: str = ""
    event: bool = True
    looked: bool = False


Tell = Callable[[Note], None]


def silent(note: Note) -> None:
    """Tells nobody."""
    del note
