"""Policy decision: its kind, and a reason that an operator can act on.

The reason names the annotation or setting, its level and its value; it is shown in conditions, Events and records.
"""

from typing import Final, Literal

import msgspec

Kind = Literal["delete", "retain", "hold", "protected", "paused", "dry-run", "out-of-scope", "free"]

_LONGEST: Final = 80


class PolicyDecision(msgspec.Struct, frozen=True):
    """`mark` is the annotation that decided, if one did. Only the protection check returns `free`. With `snapshot` a
    snapshot is completed before anything is deleted."""

    kind: Kind
    reason: str
    mark: str = ""
    snapshot: bool = False


class DefaultPolicy(msgspec.Struct, frozen=True):
    """Default policy of a source that does not take the default of the settings, as it was just read. An empty `word`
    holds; `reason` then says what to do."""

    word: Literal["delete", "retain", ""]
    reason: str


def quoted(value: str) -> str:
    """A user-supplied value as it can be shown in a sentence: quoted and cut."""
    return repr(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…")
