"""Policy decision: its kind, and a reason that an operator can act on.

The reason names the annotation or setting, its level and its value; it is shown in conditions, Events and records.
"""

from typing import Final, Literal

import msgspec

Kind = Literal["delete", "retain", "hold", "protected", "paused", "dry-run", "out-of-scope", "free"]

_LONGEST: Final = 80


class PolicyDecision(msgspec.Struct, frozen=True):
    """`mark` is the annotation that decided, if one did. Only the protection check returns `free`."""

    kind: Kind
    reason: str
    mark: str = ""


def quoted(value: str) -> str:
    """A user-supplied value as it can be shown in a sentence: quoted and cut."""
    return repr(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…")
