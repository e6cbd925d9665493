"""Minimum duration of a plan, computed from the tokens that its targets draw and the current state of the limits.
The time that the provider takes, and the use of the same tokens by other deletions, are unknown and left out."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from service.contract import Draw, Limit


class LimitState(NamedTuple):
    """Current state of a limit. `factor` is its speed after throttling and learning."""

    tokens: float
    factor: float = 1.0
    paused_until: datetime | None = None


class LimitWait(NamedTuple):
    """Tokens that a plan draws from one limit of one place, and the minimum wait for them."""

    place: str
    limit: str
    wanted: float
    available: float
    per_second: float
    wait: timedelta


def estimate_waits(
    draws: Iterable[tuple[str, Draw]], standing: Mapping[tuple[str, str], LimitState], now: datetime
) -> list[LimitWait]:
    """`draws` has a pair of place and draw for each target and limit; a limit without state is full."""
    wanted: dict[tuple[str, str], float] = {}
    limits: dict[tuple[str, str], Limit] = {}
    for place, draw in draws:
        key = (place, draw.limit.name)
        wanted[key] = wanted.get(key, 0.0) + draw.cost
        limits[key] = draw.limit
    found = [_limit_wait(key, wanted[key], limits[key], standing.get(key), now) for key in wanted]
    return sorted(found, key=lambda need: (-need.wait, need.place, need.limit))


def _limit_wait(
    key: tuple[str, str], wanted: float, limit: Limit, standing: LimitState | None, now: datetime
) -> LimitWait:
    usable = max(limit.capacity - limit.spare, 0.0)
    has = usable if standing is None else max(0.0, standing.tokens - limit.spare)
    factor = 1.0 if standing is None else max(standing.factor, 0.01)
    rate = limit.capacity / limit.per.total_seconds() * factor
    missing = max(0.0, wanted - has)
    if limit.kind == "window":
        # All tokens are refilled when a new window begins.
        seconds = math.ceil(missing / usable) * limit.per.total_seconds() if usable and missing else 0.0
    else:
        seconds = missing / rate
    wait = timedelta(seconds=seconds)
    if standing is not None and standing.paused_until is not None:
        wait += max(timedelta(0), standing.paused_until - now)
    return LimitWait(key[0], key[1], wanted, round(has, 3), round(rate, 3), wait)
