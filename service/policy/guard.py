"""The guard's arithmetic and words: how many deletions of a source one window lets through.

Both bounds hold: a source that owns little is guarded by its percentage, one that owns much by the plain number.
"""

from typing import Final, NamedTuple

from service.settings.durations import write
from service.settings.sources import ORPHANS, GuardSettings

FLOOR: Final = 20
"""A percentage of a small fleet would trip on an ordinary day; the percentage always lets so many through."""

PREFIX: Final = "guard: "
"""With which the reason begins wherever the guard holds something, so that a release finds it again."""


def orphans_of(source: str) -> str:
    """Under which name is counted what a sweep of the source found: its own, so that a flood of orphans holds nothing
    that somebody deleted. What a source owns says nothing about them, so that only the plain number bounds them."""
    return source + ORPHANS


def parted(name: str) -> tuple[str, bool]:
    """The source of a name that is counted under, and whether its orphans are meant."""
    return (name.removesuffix(ORPHANS), True) if name.endswith(ORPHANS) else (name, False)


class Peak(NamedTuple):
    """The most that a source owned since a moment in milliseconds, and in the window before that."""

    most: int
    before: int
    since: int

    @property
    def owned(self) -> int:
        return max(self.most, self.before)


def peak_of(known: Peak | None, owned: int, now: int, window: int) -> Peak:
    """What goes makes a source own less, and must not thereby make its limit smaller than what has gone already: the
    percentage is of the most that it owned in this window and the one before. Times are in milliseconds."""
    if known is None or now - known.since >= 2 * window:
        return Peak(owned, 0, now)
    if now - known.since >= window:
        return Peak(owned, known.most, known.since + window)
    return known._replace(most=max(known.most, owned))


def limit_of(guard: GuardSettings, owned: int | None) -> int:
    """`owned` counts the objects of a source that live or are going, at their most; unknown, the plain number alone
    bounds it."""
    if owned is None:
        return guard.most
    return min(guard.most, max(FLOOR, int(owned * guard.percent / 100)))


def held_reason(source: str, guard: GuardSettings, owned: int | None) -> str:
    """Why new deletions are held. It is the same for each of them, so that it is told once."""
    bounds = f"most {guard.most}"
    if owned is not None:
        bounds += f", {guard.percent:g}% of {owned} owned"
    return (
        f"{PREFIX}more than {limit_of(guard, owned)} deletions of source {source} within {write(guard.window)} "
        f"({bounds}); new ones wait for `knell guard release {source}`"
    )
