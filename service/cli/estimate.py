"""How long the budgets make a plan last, at least: pure, from what its targets draw and what the limits have now.
What a provider itself takes, and who else wants the same tokens meanwhile, nobody knows beforehand."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from service.contract import Draw, Limit


class Standing(NamedTuple):
    """What a limit has at the moment; throttling may have slowed it down or paused it, learning made it faster."""

    tokens: float
    factor: float = 1.0
    paused_until: datetime | None = None


class Need(NamedTuple):
    """What a plan draws on one limit of one place, and how long that takes at least."""

    place: str
    limit: str
    wanted: float
    available: float
    per_second: float
    wait: timedelta


def needs(draws: Iterable[tuple[str, Draw]], standing: Mapping[tuple[str, str], Standing], now: datetime) -> list[Need]:
    """`draws` are pairs of place and draw, one for each target and limit; a limit never used yet is full."""
    wanted: dict[tuple[str, str], float] = {}
    limits: dict[tuple[str, str], Limit] = {}
    for place, draw in draws:
        key = (place, draw.limit.name)
        wanted[key] = wanted.get(key, 0.0) + draw.cost
        limits[key] = draw.limit
    found = [_need(key, wanted[key], limits[key], standing.get(key), now) for key in wanted]
    return sorted(found, key=lambda need: (-need.wait, need.place, need.limit))


def _need(key: tuple[str, str], wanted: float, limit: Limit, standing: Standing | None, now: datetime) -> Need:
    usable = max(limit.capacity - limit.spare, 0.0)
    has = usable if standing is None else max(0.0, standing.tokens - limit.spare)
    factor = 1.0 if standing is None else max(standing.factor, 0.01)
    rate = limit.capacity / limit.per.total_seconds() * factor
    missing = max(0.0, wanted - has)
    if limit.kind == "window":
        # Tokens come all at once, when a new window begins.
        seconds = math.ceil(missing / usable) * limit.per.total_seconds() if usable and missing else 0.0
    else:
        seconds = missing / rate
    wait = timedelta(seconds=seconds)
    if standing is not None and standing.paused_until is not None:
        wait += max(timedelta(0), standing.paused_until - now)
    return Need(key[0], key[1], wanted, round(has, 3), round(rate, 3), wait)
