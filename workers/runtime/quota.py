"""The shared budgets for calls that are made outside of any lane: lists for plans, for checks and for sweeps.
Each call draws for itself, so that lists and removals together stay within the limits."""

import time
from collections.abc import Sequence
from datetime import timedelta

import structlog

from service.contract import Draw, Limit, place_of
from service.engine.budgets import Ask, Budgets, Said
from service.engine.calls import ServerAway
from workers.runtime.feedback import UNNAMED_PAUSE

log = structlog.get_logger(__name__)
PATIENCE = timedelta(seconds=2)
"""How long a draw is tried: whoever waits for it has a deadline of his own."""

AWAY = timedelta(seconds=1)
"""When to come again while the server is away."""


class BudgetQuota:
    """`share` is what background work keeps. A place is PROVIDER/ACCOUNT, whatever follows in its name."""

    def __init__(self, budgets: Budgets, share: float) -> None:
        self._budgets, self._share = budgets, share

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        """Zero: the tokens are ours. Else nothing was taken, and this is when to come again. Without `urgent` it is
        drawn as background work, which is what a sweep is."""
        # Each kind of work has a place of its own in the lines of those who wait.
        name = f"{place}/list" if urgent else f"{place}/list in the background"
        ask = Ask(name, 1, int(urgent), int(not urgent), tuple(draws))
        try:
            reserved = await self._budgets.reserve(place_of(place), self._share, [ask], PATIENCE)
        except ServerAway as error:
            # Whether tokens were taken is not known: if so, they count as spent.
            log.warning("no word on a quota, coming again", place=place, reason=str(error))
            return AWAY
        (grant,) = reserved.grants
        return timedelta(0) if grant.urgent or grant.background else timedelta(milliseconds=max(1, grant.again))

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        """The provider refused a call for want of this; everybody stays away from it for what it named, or a moment.
        The call drew on `others` as well, and it may have been for want of one of them."""
        until = time.monotonic() + (UNNAMED_PAUSE if wait is None else wait.total_seconds())

        def said() -> list[Said]:
            pause = int(max(0.0, until - time.monotonic()) * 1000)
            return [Said(limit, 1, pause=pause, strike=1), *(Said(other, 0, strike=1) for other in others)]

        await self._budgets.correct(place_of(place), said, PATIENCE)

    async def answered(self, place: str, limit: Limit, left: float | None) -> None:
        """A call came back, and perhaps told how much of its limit is left."""
        said = Said(limit, 1, -1 if left is None else left)
        await self._budgets.correct(place_of(place), [said], PATIENCE)
