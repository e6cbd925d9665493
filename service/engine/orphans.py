"""What sweeps of a source saw without an owner: since when, and in how many passes, kept so that a restart loses none.
Everything lies in the first shard, in one plain hash; what a pass does not see any more is forgotten by it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.engine.installation import Installation
from service.engine.views.reading import server_ms, text

DECIDED: Final = timedelta(days=90)
"""So long it is remembered that something was to stay which is not seen any more."""

STEP: Final = 500
"""Records in one round trip."""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """`first` is when it was first seen orphaned, by the server's clock; `passes` counts, and `last` is the number of
    the one that saw it last. `ids` are the provider's own of what was seen: with others it is another orphan of that
    name. `round` is that of its deletion, and `told` are the ids for which that was published; `left` is when it was
    found that somebody has decided to leave it there, 0 where nobody has."""

    v: int = VERSION
    first: int
    last: int
    passes: int = 1
    ids: str = ""
    round: int = 1
    told: str = ""
    left: int = 0


class Begun(NamedTuple):
    """The number of a pass, and the server's time in milliseconds when it began."""

    number: int
    now: int


_PROBLEM: Final = "problem@sweep"
_SINCE: Final = "problem_since@sweep"
_decode: Final = msgspec.json.Decoder(Sighting).decode
_encode: Final = msgspec.json.Encoder().encode


class Orphans:
    """Of one source."""

    def __init__(self, installation: Installation, source: str) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, f"orphans:{source}")
        self._state = installation.keys.of(0, f"source:{source}")

    # ---- passes

    async def begin(self) -> Begun:
        """A number that is skipped does no harm."""
        now = await self.now()
        number = int(await self._caller.command("HINCRBY", self._state, "sweep", 1))
        if number < 1_000_000_000_000:
            # New, or lost while sightings with high numbers may still be there: begin above all of them.
            number = int(await self._caller.command("HINCRBY", self._state, "sweep", now))
        return Begun(number, now)

    async def now(self) -> int:
        return await server_ms(self._installation.shards[0])

    async def last(self) -> int:
        """When the last whole pass began, 0 where there was none."""
        known = await self._caller.command("HGET", self._state, "sweep_at")
        return int(known) if known is not None and text(known).isdecimal() else 0

    async def note(self, fields: Mapping[str, str | int]) -> None:
        await self._caller.command("HSET", self._state, *(word for pair in fields.items() for word in pair))

    async def trouble(self, why: str) -> None:
        """Why the last pass came to nothing, shown with what else is wrong with the source; empty where it did not."""
        if not why:
            await self._caller.command("HDEL", self._state, _PROBLEM, _SINCE)
            return
        await self._caller.command("HSETNX", self._state, _SINCE, await self.now())
        await self.note({_PROBLEM: why})

    # ---- sightings

    async def recall(self, uids: Iterable[str]) -> dict[str, Sighting]:
        """Those that are known. One that can't be read counts as never seen: then it has to wait again."""
        found: dict[str, Sighting] = {}
        for part in _steps(uids):
            answers = await self._caller.command("HMGET", self.key, *part)
            for uid, raw in zip(part, answers, strict=True):
                if raw is not None and (one := _readable(raw)) is not None:
                    found[uid] = one
        return found

    async def keep(self, sightings: Mapping[str, Sighting]) -> None:
        for part in _steps(sightings):
            words = [word for uid in part for word in (uid, _encode(sightings[uid]))]
            await self._caller.command("HSET", self.key, *words)

    async def forget(self, uids: Iterable[str]) -> None:
        """As if they had never been seen, with what was decided of them."""
        for part in _steps(uids):
            await self._caller.command("HDEL", self.key, *part)

    async def forget_before(self, number: int, now: int) -> int:
        """Those that this pass and later ones have not seen: they are gone, or have an owner again. A decision is kept
        for longer: a list may leave out what is there."""
        cursor, forgotten = b"0", 0
        while True:
            cursor, page = await self._caller.command("HSCAN", self.key, cursor, "COUNT", STEP)
            rows = page.items() if isinstance(page, dict) else zip(page[::2], page[1::2], strict=True)
            doomed = [uid for uid, raw in rows if (one := _readable(raw)) is None or _is_over(one, number, now)]
            if doomed:
                forgotten += int(await self._caller.command("HDEL", self.key, *doomed))
            if int(cursor) == 0:
                return forgotten

    async def size(self) -> int:
        return int(await self._caller.command("HLEN", self.key))


def _is_over(one: Sighting, number: int, now: int) -> bool:
    return one.last < number and (not one.left or now - one.left > DECIDED / timedelta(milliseconds=1))


def _readable(raw: bytes) -> Sighting | None:
    try:
        found = _decode(raw)
    except msgspec.DecodeError:
        return None
    return found if found.v <= VERSION else None


def _steps(uids: Iterable[str]) -> Iterator[list[str]]:
    known = list(uids)
    for first in range(0, len(known), STEP):
        yield known[first : first + STEP]
