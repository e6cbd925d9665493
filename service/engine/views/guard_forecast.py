"""Forecast of a source's guard for one deletion, without counting it.
For `knell plan`; planners call the guard itself."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from service.engine.batch_reads import batch, number, server_ms, texts, to_datetime
from service.engine.guard import DeletedObject, owned_by, peak_in
from service.engine.installation import Installation
from service.engine.script_arguments import ms
from service.engine.shard import Shard
from service.policy.guard import guard_limit, held_reason, next_peak
from service.settings import GuardSettings

# The same values as in guard.lua.
_PLACES: Final = 8
_KEPT: Final = 604_800_000


class GuardForecast(msgspec.Struct, frozen=True, kw_only=True):
    """`counted` is the count of the fullest window around the time of the deletion, or of the window that tripped the
    guard; `passed` is true where it was admitted or released before. `limit` is None where the guard is off."""

    source: str
    holds: bool
    why: str
    tripped: datetime | None
    passed: bool
    counted: int
    limit: int | None
    owned: int | None
    window: timedelta


async def guard_forecast(
    installation: Installation, source: str, going: DeletedObject, settings: GuardSettings
) -> GuardForecast:
    """Whether this deletion would be held. Changes nothing."""
    shard, now = installation.shards[0], await server_ms(installation.shards[0])
    (raw,) = await batch(shard.caller, [("HGETALL", f"{shard.stem}source:{source}")])
    record = texts(raw)
    owned = owned_by(record)
    if owned is not None:
        owned = next_peak(peak_in(record), owned, now, ms(settings.window)).owned
    limit, tripped = guard_limit(settings, owned), to_datetime(record.get("guard_tripped"))
    passed = await _has_passed(shard, source, going.uid, now, number(record.get("guard_from")), settings)
    # A live object would be deleted now; a time in the future counts as now as well.
    at = going.at if 0 < going.at <= now else now
    counted = await _fullest(shard, source, at, limit, ms(settings.window))
    why = ""
    if settings.enabled and not passed:
        if tripped is not None:
            why, counted = record.get("guard_why", ""), max(counted, int(number(record.get("guard_counted"))))
        elif counted >= limit:
            why = held_reason(source, settings, owned)
    return GuardForecast(
        source=source,
        holds=bool(why),
        why=why,
        tripped=tripped,
        passed=passed,
        counted=counted,
        limit=limit if settings.enabled else None,
        owned=owned,
        window=settings.window,
    )


async def _has_passed(shard: Shard, source: str, uid: str, now: int, since: float, settings: GuardSettings) -> bool:
    passed, waiting = await batch(
        shard.caller,
        [("ZSCORE", f"{shard.stem}passed:{source}", uid), ("ZSCORE", f"{shard.stem}guarded:{source}", uid)],
    )
    kept = max(_KEPT, 2 * ms(settings.window))
    return (passed is not None and float(passed) >= now - kept) or (waiting is not None and float(waiting) <= since)


async def _fullest(shard: Shard, source: str, at: int, limit: int, window: int) -> int:
    """The highest count of a window around that time, at the same positions as guard.lua."""
    key = f"{shard.stem}guard:{source}"
    firsts = [at - window * place // _PLACES for place in range(1, _PLACES)]
    before, after, *between = await batch(
        shard.caller,
        [("ZCOUNT", key, f"({at - window}", at), ("ZCOUNT", key, at, f"({at + window}"),
         *(("ZCOUNT", key, first, f"({first + window}") for first in firsts)],
    )  # fmt: skip
    return int(max(before, after, *between) if before + after >= limit else max(before, after))
