"""Durations in settings: `180s`, `5m`, `250ms`, `1h30m`, or a number of seconds.
Everywhere else they are `timedelta`."""

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE: Final = re.compile(r"(-?)((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class DurationBounds:
    """Bounds of a duration, for use with `Annotated`."""

    above: timedelta | None = None
    least: timedelta | None = None
    most: timedelta | None = None

    def holds(self, value: timedelta) -> bool:
        above, least, most = self.above, self.least, self.most
        return (
            (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)
        )

    def __str__(self) -> str:
        example = "a duration such as 250ms, 180s, 5m or 1h30m, or a number of seconds"
        if self.above is not None:
            return f"{example}, longer than {format_duration(self.above)}"
        if self.least is not None:
            example = f"{example}, at least {format_duration(self.least)}"
        return example if self.most is None else f"{example}, at most {format_duration(self.most)}"


Positive = Annotated[timedelta, DurationBounds(above=timedelta(0))]
NotNegative = Annotated[timedelta, DurationBounds(least=timedelta(0))]


def parse_duration(given: object) -> timedelta:
    """Raises ValueError."""
    match given:
        case timedelta():
            return given
        case bool():
            raise ValueError("a duration is not true or false")
        case int() | float():
            return _seconds(float(given))
        case str():
            return _parse(given.strip().lower())
        case _:
            raise ValueError("neither text nor a number")


def _seconds(number: float) -> timedelta:
    if not math.isfinite(number):
        raise ValueError("not a finite number")
    try:
        return timedelta(seconds=number)
    except OverflowError as error:
        raise ValueError("too long") from error


def _parse(text: str) -> timedelta:
    if _NUMBER.fullmatch(text):
        return _seconds(float(text))
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError("no number with a unit")
    parts = _PART.findall(whole[2])
    units = [unit for _, unit in parts]
    # `5m2m` and `1s2h` are typing errors, not sums.
    if units != sorted(set(units), key=list(_UNITS).index, reverse=True):
        raise ValueError("units must descend and appear once")
    try:
        total = sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError as error:
        raise ValueError("too long") from error
    return -total if whole[1] else total


def format_duration(value: timedelta) -> str:
    """The shortest text that `parse_duration` turns into the same duration."""
    if not value:
        return "0s"
    sign = "-" if value < timedelta(0) else ""
    rest = abs(value)
    text = ""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            text += f"{count}{unit}"
    if rest:
        milliseconds = rest / _UNITS["ms"]
        text += f"{milliseconds:.3f}".rstrip("0").rstrip(".") + "ms"
    return sign + text
