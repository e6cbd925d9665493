"""What policy answers: one word, and the reason for it in words that a person can act on.

The reason names the level, the annotation or setting, and its value; it goes into conditions, Events and records.
"""

from typing import Final, Literal

import msgspec

Kind = Literal["delete", "retain", "hold", "protected", "paused", "dry-run", "out-of-scope", "free"]

_LONGEST: Final = 80


class Decision(msgspec.Struct, frozen=True):
    """`mark` is the annotation that decided, where one did; `free` is an answer about protection alone."""

    kind: Kind
    reason: str
    mark: str = ""


def shown(value: str) -> str:
    """A value that anybody may have written, as it can stand in a sentence."""
    return repr(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…")
