"""The sentences that owners read: what is waited for, by name and until when, and what was done, with counts.
Pure: what was heard goes in, a sentence comes out, no longer than an Event may be."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from service.stream.views.deletions import DeletionView

NAMED = 8
"""Resources that a sentence names; of the others it says how many there are."""


class Waiting(NamedTuple):
    """A job that waits: for what, and until when (milliseconds of the epoch) it is left alone."""

    target: str
    kind: str
    why: str
    until: int


class _Heard(msgspec.Struct, frozen=True):
    """What of a job's record says why it waits."""

    target: str = ""
    verdict: str = ""
    detail: str = ""
    last_error: str = ""


def waiting_of(kind: str, record: str, until: int) -> Waiting | None:
    """From a job's record as it was settled; None where it can't be read."""
    try:
        heard = msgspec.json.decode(record + "}", type=_Heard)
    except msgspec.DecodeError:
        return None
    return Waiting(heard.target, kind, heard.last_error if kind == "retry" else heard.detail, until)


def waited_for(found: Iterable[Waiting]) -> str:
    """Those that are tried again first come first."""
    ordered = sorted(found, key=lambda one: one.until)
    named = "; ".join(f"{one.target}: {_why(one)}, tried again at {_clock(one.until)}" for one in ordered[:NAMED])
    more = f"; and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return f"waiting for {'1 resource' if len(ordered) == 1 else f'{len(ordered)} resources'}: {named}{more}"


def done(view: DeletionView | None) -> str:
    """The release itself is a job too, which nobody asks for."""
    if view is None or not view.jobs:
        return "released"
    targets = view.jobs - 1
    removed = targets - view.abandoned - view.given_up
    parts = [f"{removed} of {targets} resources removed"] if targets else ["nothing was to be removed"]
    if view.abandoned:
        parts.append(f"{view.abandoned} left by decision")
    if view.given_up:
        parts.append(f"{view.given_up} given up")
    if view.withdrawn:
        parts.append(f"withdrawn: {view.withdrawn}")
    elif not targets and view.policy:
        parts.append(view.policy)
    return ", ".join(parts)


def _why(one: Waiting) -> str:
    return f"used by {one.why}" if one.kind == "blocked" else one.why or one.kind


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
