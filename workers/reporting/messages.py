"""Texts of Events and conditions: obstacles by name with the time of the next try, and the result with counts.
Pure functions of the records. No text is longer than an Event may be."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from service.engine.views.overview import PauseView
from service.engine.views.progress import Obstacle, RemovalSummary

NAMED = 8
"""Resources that a message names; the others are only counted."""

IN_PROGRESS = "what is left is being removed"


def obstacles_message(found: Iterable[Obstacle], *, times: bool = True) -> str:
    """Obstacles that need a person come first, then those that are retried first. Without `times` the message stays the
    same while only the time of the next try changes."""
    ordered = sorted(found, key=lambda one: one.due)
    held, waiting = [one for one in ordered if one.held], [one for one in ordered if not one.held]
    parts = []
    if held:
        verb = "needs" if len(held) == 1 else "need"
        parts.append(f"{_counted(held)} {verb} a person: {_named(held, times=times)}")
    if waiting:
        parts.append(f"waiting for {_counted(waiting)}: {_named(waiting, times=times)}")
    return "; ".join(parts)


def done_message(ending: RemovalSummary | None) -> str:
    if ending is None:
        return "released"
    count = ending.resources
    nothing = "nothing was left to be removed" if ending.absent else "nothing was to be removed"
    parts = [f"{ending.removed} of {count} resources removed" if count else nothing]
    if ending.abandoned:
        parts.append(f"{ending.abandoned} left by decision")
    if ending.given_up:
        parts.append(f"{ending.given_up} given up")
    if ending.withdrawn:
        parts.append(f"withdrawn: {ending.withdrawn}")
    elif not count and ending.policy:
        parts.append(ending.policy)
    return ", ".join(parts)


def paused_message(pause: PauseView) -> str:
    since = f" since {pause.since:%Y-%m-%d %H:%M:%S UTC}" if pause.since else ""
    return f"everything is paused by {pause.who}{since}, and nothing is removed until `knell resume`"


def _counted(found: Sequence[Obstacle]) -> str:
    """The final check and the release are not resources."""
    number = sum(one.what == "resource" for one in found)
    looks = [_OTHERS[one.what] for one in found if one.what != "resource"]
    resources = [] if not number else ["1 resource" if number == 1 else f"{number} resources"]
    return " and ".join([*resources, *dict.fromkeys(looks)])


_OTHERS = {"look": "the last look at what is left", "release": "the release of the object"}


def _named(ordered: Sequence[Obstacle], *, times: bool) -> str:
    """Obstacles with the same reason are grouped."""
    groups: dict[str, list[Obstacle]] = {}
    for one in ordered[:NAMED]:
        groups.setdefault(_why(one), []).append(one)
    parts = []
    for why, alike in groups.items():
        names = ", ".join(one.target for one in alike if one.what == "resource")
        again = f", tried again at {_clock(alike[0].due)}" if times and alike[0].due else ""
        parts.append(f"{names}{': ' if names else ''}{why}{again}")
    more = [f"and {len(ordered) - NAMED} more"] if len(ordered) > NAMED else []
    return "; ".join([*parts, *more])


def _why(one: Obstacle) -> str:
    return f"blocked: {one.why}" if one.verdict == "blocked" else one.why or one.verdict


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
