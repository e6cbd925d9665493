"""Current state of the limits of budgets: available tokens, reduced rates and pauses.
The stored state is that of the last write; it is extrapolated to now, as the next script would do."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from service.contract import place_of
from service.engine.batch_reads import PAGE, batch, chunks, number, texts, to_datetime
from service.engine.installation import Installation

# As in _budget.lua: a reduced rate has recovered after this time.
RECOVER_MS = 300_000

_LANE_PREFIX = "lane "
"""Prefix of the limits that only share out places in a lane without draws."""


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of one place. `factor` is below 1 after throttling; `learned` is the multiple of the declared rate that
    the provider was found to grant, `refused` the multiple that it refused in the last hours."""

    place: str
    limit: str
    kind: str
    tokens: float
    capacity: float
    per: timedelta
    factor: float
    learned: float
    refused: float | None
    paused_until: datetime | None
    out: float


async def limit_states(installation: Installation, lanes: Iterable[str], now: int) -> list[LimitUsage]:
    """The limits of these lanes that were ever used."""
    places = sorted({place_of(lane) for lane in lanes})
    found: list[LimitUsage] = []
    for part in chunks(places, PAGE):
        commands = [("HGETALL", installation.keys.budget(place)) for place in part]
        answers = await batch(installation.caller, commands)
        for place, answer in zip(part, answers, strict=True):
            found += limits_of(place, texts(answer), now)
    return found


def limits_of(place: str, record: Mapping[str, str], now: int) -> list[LimitUsage]:
    names = sorted(field.removesuffix("|capacity") for field in record if field.endswith("|capacity"))
    return [_limit_usage(place, name, record, now) for name in names if not name.startswith(_LANE_PREFIX)]


def _limit_usage(place: str, name: str, record: Mapping[str, str], now: int) -> LimitUsage:
    def of(field: str) -> float:
        return number(record.get(f"{name}|{field}"))

    capacity, per, kind = of("capacity"), max(of("per"), 1.0), record.get(f"{name}|kind", "bucket")
    factor = of("factor")
    if factor < 1:
        factor = min(1.0, factor + max(0.0, now - of("factor_at")) / RECOVER_MS)
    learned = max(1.0, of("learned"))
    rate = capacity / per * factor * learned
    tokens = of("tokens")
    if kind == "bucket":
        tokens += max(0.0, now - of("at")) * rate
    else:
        if of("ramp") == 1:
            tokens += max(0.0, min(now, of("at") + per) - of("from")) * rate
        if now - of("at") >= per:
            tokens = capacity * factor
    pause = of("pause")
    return LimitUsage(
        place=place,
        limit=name,
        kind=kind,
        tokens=round(min(capacity, tokens), 3),
        capacity=capacity,
        per=timedelta(milliseconds=per),
        factor=round(factor, 3),
        learned=round(learned, 3),
        refused=round(of("refused"), 3) if of("refused_until") > now else None,
        paused_until=to_datetime(pause) if pause > now else None,
        out=of("out") + of("out_before"),
    )
