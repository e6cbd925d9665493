"""Budgets: the rate limits of one provider account, shared by all workers and shards.

Tokens are reserved before jobs are taken, returned when unused, and corrected by the provider's responses. The limits
are declared in `workers/providers/aws/limits.py` and `workers/providers/azure/limits.py`; settings override them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from service.contract import Draw, Limit
from service.engine.calls import RedisCaller, ServerUnavailable
from service.engine.keys import Keys

SHORT = timedelta(seconds=30)
"""How long a return or a correction is retried: well below the minute for which answers are stored."""


class ReservationRequest(NamedTuple):
    """What a lane of one shard could use now: at most `most` jobs of so many urgent and background ones. Each shard
    queues for tokens separately, since it does not know what is due in the others."""

    lane: str
    most: int
    urgent: int
    background: int
    draws: tuple[Draw, ...]
    shard: int = 0


class TokenGrant(NamedTuple):
    """Granted numbers of jobs; `again` is the time until more tokens are available in ms, 0 where all was granted."""

    urgent: int
    background: int
    again: int


class ReservedTokens(NamedTuple):
    corrections: int
    grants: list[TokenGrant]


class LimitFeedback(NamedTuple):
    """What responses reported about a limit; -1 stands for not reported. `age` is the age of the report in ms. `strike`
    is 1 where a call was throttled; without a pause another limit may have caused that. `reserved` is the number of the
    reservation that the call was made with, 0 where that is unknown."""

    limit: Limit
    answered: float
    remaining: float = -1
    age: int = 0
    pause: int = -1
    strike: int = 0
    reserved: int = 0


_reserved: Callable[[bytes], ReservedTokens] = msgspec.msgpack.Decoder(type=ReservedTokens, strict=False).decode
_corrected: Callable[[bytes], tuple[int, list[tuple[str, float]]]] = msgspec.msgpack.Decoder(
    type=tuple[int, list[tuple[str, float]]], strict=False
).decode


class Budgets:
    """The budgets of one installation. `overrides` are changes from the settings by name pattern of a limit;
    `learn_up_to` bounds the learned rate of a limit, as a multiple of its declared rate."""

    def __init__(
        self,
        caller: RedisCaller,
        keys: Keys,
        overrides: Mapping[str, Callable[[Limit], Limit]] | None = None,
        learn_up_to: float = 1.0,
    ) -> None:
        self._caller, self._keys, self._learn_up_to = caller, keys, learn_up_to
        self._overrides = dict(overrides or {})
        self._settled: dict[Limit, Limit] = {}

    def in_force(self, limit: Limit) -> Limit:
        """The limit with the overrides of the settings."""
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
        self, place: str, share: float, asks: Sequence[ReservationRequest], patience: timedelta | None = None
    ) -> ReservedTokens:
        wants = [
            [f"{ask.lane} of shard {ask.shard}", ask.most, ask.urgent, ask.background,
             [[self._shape(draw.limit), draw.cost, draw.together] for draw in ask.draws]]
            for ask in asks
        ]  # fmt: skip
        return _reserved(await self._move("reserve", place, [share, wants], patience))

    async def return_unused(self, place: str, corrections: int, unused: Sequence[tuple[Limit, float]]) -> bool:
        rows = [[self._shape(limit), tokens] for limit, tokens in unused]
        try:
            answer = msgspec.msgpack.decode(await self._move("return_tokens", place, [corrections, rows], SHORT))
        except ServerUnavailable:
            # Sent again after its stored answer expired it would count twice. Unreturned tokens count as spent.
            return False
        return bool(answer[0])

    async def correct(
        self,
        place: str,
        feedback: Callable[[], Sequence[LimitFeedback]] | Sequence[LimitFeedback],
        patience: timedelta = SHORT,
    ) -> bool:
        """True where tokens are available earlier than lanes were told, so that the lanes must be woken.

        `feedback` may be a function that is called right before sending, because its content ages.
        """

        def rows() -> list[Any]:
            return [[self._shape(one.limit), *one[1:]] for one in (feedback() if callable(feedback) else feedback)]

        try:
            earlier, _ = _corrected(await self._move("correct", place, rows, patience))
        except ServerUnavailable:
            return False
        return bool(earlier)
