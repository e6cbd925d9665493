"""Store of orphans that sweeps of a source found: since when, and in how many passes.
The data is one hash in the first shard; a pass removes the sightings that it did not confirm."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.engine.batch_reads import server_ms, text
from service.engine.installation import Installation

DECIDED: Final = timedelta(days=90)
"""How long a decision to keep a resource is stored after the resource was last seen."""

STEP: Final = 500
"""Records in one round trip."""


class OrphanSighting(msgspec.Struct, frozen=True, kw_only=True):
    """`first` is when the resource was first seen orphaned, by the server's clock; `passes` is the number of passes
    that saw it, `last` the number of the last one. `ids` are the provider's ids: with other ids it is a different
    orphan of that name. `round` is the number of its deletion, `told` the ids for which that was published. `left` is
    when a decision to keep it was found, 0 where there is none."""

    v: int = VERSION
    first: int
    last: int
    passes: int = 1
    ids: str = ""
    round: int = 1
    told: str = ""
    left: int = 0


class PassStart(NamedTuple):
    """The number of a pass, and the server's time in milliseconds when it began."""

    number: int
    now: int


_PROBLEM: Final = "problem@sweep"
_SINCE: Final = "problem_since@sweep"
_decode: Final = msgspec.json.Decoder(OrphanSighting).decode
_encode: Final = msgspec.json.Encoder().encode


class OrphanSightings:
    def __init__(self, installation: Installation, source: str) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, f"orphans:{source}")
        self._state = installation.keys.of(0, f"source:{source}")

    # ---- passes

    async def begin_pass(self) -> PassStart:
        """Numbers may be skipped."""
        now = await self.now()
        number = int(await self._caller.command("HINCRBY", self._state, "sweep", 1))
        if number < 1_000_000_000_000:
            # The state is new, or was lost while sightings with high numbers may still exist: begin above them.
            number = int(await self._caller.command("HINCRBY", self._state, "sweep", now))
        return PassStart(number, now)

    async def now(self) -> int:
        return await server_ms(self._installation.shards[0])

    async def last_pass_at(self) -> int:
        """When the last complete pass began, 0 where there was none."""
        known = await self._caller.command("HGET", self._state, "sweep_at")
        return int(known) if known is not None and text(known).isdecimal() else 0

    async def save_state(self, fields: Mapping[str, str | int]) -> None:
        await self._caller.command("HSET", self._state, *(word for pair in fields.items() for word in pair))

    async def set_problem(self, why: str) -> None:
        """Stores why the last pass failed, which is shown with the source's other problems; an empty text clears it."""
        if not why:
            await self._caller.command("HDEL", self._state, _PROBLEM, _SINCE)
            return
        await self._caller.command("HSETNX", self._state, _SINCE, await self.now())
        await self.save_state({_PROBLEM: why})

    # ---- sightings

    async def get_many(self, uids: Iterable[str]) -> dict[str, OrphanSighting]:
        """The sightings that exist. One that can't be decoded counts as never seen and begins its wait again."""
        found: dict[str, OrphanSighting] = {}
        for part in _steps(uids):
            answers = await self._caller.command("HMGET", self.key, *part)
            for uid, raw in zip(part, answers, strict=True):
                if raw is not None and (one := _readable(raw)) is not None:
                    found[uid] = one
        return found

    async def save(self, sightings: Mapping[str, OrphanSighting]) -> None:
        for part in _steps(sightings):
            words = [word for uid in part for word in (uid, _encode(sightings[uid]))]
            await self._caller.command("HSET", self.key, *words)

    async def remove(self, uids: Iterable[str]) -> None:
        """Removes sightings together with the decisions on them."""
        for part in _steps(uids):
            await self._caller.command("HDEL", self.key, *part)

    async def remove_unseen(self, number: int, now: int) -> int:
        """Removes sightings that pass `number` and later ones did not confirm: the resource is gone or has an owner
        again. Decisions are stored for longer, because a list may be incomplete."""
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


def _is_over(one: OrphanSighting, number: int, now: int) -> bool:
    return one.last < number and (not one.left or now - one.left > DECIDED / timedelta(milliseconds=1))


def _readable(raw: bytes) -> OrphanSighting | None:
    try:
        found = _decode(raw)
    except msgspec.DecodeError:
        return None
    return found if found.v <= VERSION else None


def _steps(uids: Iterable[str]) -> Iterator[list[str]]:
    known = list(uids)
    for first in range(0, len(known), STEP):
        yield known[first : first + STEP]
