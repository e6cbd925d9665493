"""Limit of the guard: how many deletions of a source are allowed in one window.

Both bounds apply: the percentage limits sources with few objects, the absolute number those with many.
"""

from typing import Final, NamedTuple

from service.durations import format_duration
from service.settings.sources import ORPHANS, GuardSettings

FLOOR: Final = 20
"""The minimum of the percentage bound: for few objects, a percentage would trip on ordinary days."""

PREFIX: Final = "guard: "
"""Prefix of the reasons of deletions that the guard holds, by which a release finds them."""


def orphans_guard_name(source: str) -> str:
    """The name under which the orphans of a source are counted. It is separate, so that many orphans do not hold the
    deletions of objects. Only the absolute number bounds them."""
    return source + ORPHANS


def split_guard_name(name: str) -> tuple[str, bool]:
    """The source of a guard name, and whether it is for orphans."""
    return (name.removesuffix(ORPHANS), True) if name.endswith(ORPHANS) else (name, False)


class Peak(NamedTuple):
    """The highest number of owned objects since a time in milliseconds, and in the window before it."""

    most: int
    before: int
    since: int

    @property
    def owned(self) -> int:
        return max(self.most, self.before)


def next_peak(known: Peak | None, owned: int, now: int, window: int) -> Peak:
    """The percentage refers to the peak in this window and the one before, so that deletions do not lower the limit
    while they are counted. Times are in milliseconds."""
    if known is None or now - known.since >= 2 * window:
        return Peak(owned, 0, now)
    if now - known.since >= window:
        return Peak(owned, known.most, known.since + window)
    return known._replace(most=max(known.most, owned))


def guard_limit(guard: GuardSettings, owned: int | None) -> int:
    """`owned` is the peak number of objects of a source, including those being deleted; None: only the absolute number
    applies."""
    if owned is None:
        return guard.most
    return min(guard.most, max(FLOOR, int(owned * guard.percent / 100)))


def held_reason(source: str, guard: GuardSettings, owned: int | None) -> str:
    """Why new deletions are held. It is the same text for all of them."""
    bounds = f"most {guard.most}"
    if owned is not None:
        bounds += f", {guard.percent:g}% of {owned} owned"
    return (
        f"{PREFIX}more than {guard_limit(guard, owned)} deletions of source {source} within "
        f"{format_duration(guard.window)} "
        f"({bounds}); new ones wait for `knell guard release {source}`"
    )
