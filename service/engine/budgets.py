"""Budgets: the limits of one provider's account, shared by all workers and shards.

Tokens are reserved before work is taken, given back when unused, and corrected by what the provider answers.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from service.contract import Draw, Limit
from service.engine.calls import Caller, ServerAway
from service.engine.keys import Keys

SHORT = timedelta(seconds=30)
"""How long a return or a correction is tried: well below the minute for which answers are remembered."""


class Ask(NamedTuple):
    """What a lane would use now: `most` jobs out of so many urgent and background ones. It waits in line for each shard
    by itself, for one shard knows nothing of what is due in another."""

    lane: str
    most: int
    urgent: int
    background: int
    draws: tuple[Draw, ...]
    shard: int = 0


class Grant(NamedTuple):
    """So many of each; `again` ms until there is more, 0 where nothing was wanting."""

    urgent: int
    background: int
    again: int


class Reserved(NamedTuple):
    corrections: int
    grants: list[Grant]


class Said(NamedTuple):
    """What answers told of a limit. -1 stands for not told; `age` is how long ago it was true, in ms. `strike` is 1
    where a call was refused, without a pause perhaps for want of another limit; `reserved` is the number of the
    reservation that it was made with, 0 where that is not known."""

    limit: Limit
    answered: float
    remaining: float = -1
    age: int = 0
    pause: int = -1
    strike: int = 0
    reserved: int = 0


_reserved: Callable[[bytes], Reserved] = msgspec.msgpack.Decoder(type=Reserved, strict=False).decode
_corrected: Callable[[bytes], tuple[int, list[tuple[str, float]]]] = msgspec.msgpack.Decoder(
    type=tuple[int, list[tuple[str, float]]], strict=False
).decode


class Budgets:
    """The budgets of one installation. `overrides` are limits by name pattern that settings put in place;
    `learn_up_to` is how many times its declared rate a limit that learns may come to."""

    def __init__(
        self,
        caller: Caller,
        keys: Keys,
        overrides: Mapping[str, Callable[[Limit], Limit]] | None = None,
        learn_up_to: float = 1.0,
    ) -> None:
        self._caller, self._keys, self._learn_up_to = caller, keys, learn_up_to
        self._overrides = dict(overrides or {})
        self._settled: dict[Limit, Limit] = {}

    def in_force(self, limit: Limit) -> Limit:
        """The limit after the settings' word."""
        known = self._settled.get(limit)
        if known is None:
            known = limit
            for pattern, change in self._overrides.items():
                if fnmatchcase(limit.name, pattern):
                    known = change(known)
            self._settled[limit] = known
        return known

    def _shape(self, limit: Limit) -> list[Any]:
        known = self.in_force(limit)
        most = self._learn_up_to if known.learns and known.kind == "bucket" else 1.0
        return [known.name, known.kind, known.capacity, known.per / timedelta(milliseconds=1), known.spare, most]

    def _move(self, name: str, place: str, args: Any, patience: timedelta | None = None) -> Any:
        key = self._keys.budget(place)
        return self._caller.move(name, key, key + ":", args, patience=patience)

    async def reserve(
        self, place: str, share: float, asks: Sequence[Ask], patience: timedelta | None = None
    ) -> Reserved:
        wants = [
            [f"{ask.lane} of shard {ask.shard}", ask.most, ask.urgent, ask.background,
             [[self._shape(draw.limit), draw.cost, draw.together] for draw in ask.draws]]
            for ask in asks
        ]  # fmt: skip
        return _reserved(await self._move("reserve", place, [share, wants], patience))

    async def give_back(self, place: str, corrections: int, unused: Sequence[tuple[Limit, float]]) -> bool:
        rows = [[self._shape(limit), tokens] for limit, tokens in unused]
        try:
            answer = msgspec.msgpack.decode(await self._move("give_back", place, [corrections, rows], SHORT))
        except ServerAway:
            # Sent again after its answer is forgotten it would count twice; unreturned tokens count as spent.
            return False
        return bool(answer[0])

    async def correct(
        self, place: str, said: Callable[[], Sequence[Said]] | Sequence[Said], patience: timedelta = SHORT
    ) -> bool:
        """True where tokens are there earlier than lanes were told: they want waking.

        `said` may be a function, asked at the moment of sending, because what it tells is getting older.
        """

        def rows() -> list[Any]:
            return [[self._shape(word.limit), *word[1:]] for word in (said() if callable(said) else said)]

        try:
            earlier, _ = _corrected(await self._move("correct", place, rows, patience))
        except ServerAway:
            return False
        return bool(earlier)
