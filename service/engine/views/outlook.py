"""What a source's guard would say of one deletion if it were asked now: it looks as the guard does, and counts nothing.
For who plans ahead; whoever carries a deletion out asks the guard itself."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from service.engine.engine import Shard
from service.engine.guard import Going, owned_by, peak_in
from service.engine.installation import Installation
from service.engine.rows import ms
from service.engine.views.reading import batch, moment, number, server_ms, texts
from service.policy.guard import held_reason, limit_of, peak_of
from service.settings import GuardSettings

# As the guard's own script has them.
_PLACES: Final = 8
_KEPT: Final = 604_800_000


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """`counted` is of the fullest window around the moment of the deletion, or of the one that tripped the guard;
    `passed` says that it was let through before, or released. `limit` is None where the guard is off."""

    source: str
    holds: bool
    why: str
    tripped: datetime | None
    passed: bool
    counted: int
    limit: int | None
    owned: int | None
    window: timedelta


async def outlook(installation: Installation, source: str, going: Going, settings: GuardSettings) -> Outlook:
    """Whether this deletion would be held; nothing is changed by asking."""
    shard, now = installation.shards[0], await server_ms(installation.shards[0])
    (raw,) = await batch(shard.caller, [("HGETALL", f"{shard.stem}source:{source}")])
    record = texts(raw)
    owned = owned_by(record)
    if owned is not None:
        owned = peak_of(peak_in(record), owned, now, ms(settings.window)).owned
    limit, tripped = limit_of(settings, owned), moment(record.get("guard_tripped"))
    passed = await _has_passed(shard, source, going.uid, now, number(record.get("guard_from")), settings)
    # One that lives would be deleted now; a time that lies ahead counts as now as well.
    at = going.at if 0 < going.at <= now else now
    counted = await _fullest(shard, source, at, limit, ms(settings.window))
    why = ""
    if settings.enabled and not passed:
        if tripped is not None:
            why, counted = record.get("guard_why", ""), max(counted, int(number(record.get("guard_counted"))))
        elif counted >= limit:
            why = held_reason(source, settings, owned)
    return Outlook(
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
    """The most that one window around that moment has, in the same places in which the guard looks."""
    key = f"{shard.stem}guard:{source}"
    firsts = [at - window * place // _PLACES for place in range(1, _PLACES)]
    before, after, *between = await batch(
        shard.caller,
        [("ZCOUNT", key, f"({at - window}", at), ("ZCOUNT", key, at, f"({at + window}"),
         *(("ZCOUNT", key, first, f"({first + window}") for first in firsts)],
    )  # fmt: skip
    return int(max(before, after, *between) if before + after >= limit else max(before, after))
