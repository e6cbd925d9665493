"""Shared budgets for single calls outside of any lane: lists for plans, checks and sweeps.
Each call draws its own tokens, so that lists and removals together stay within the limits."""

import time
from collections.abc import Sequence
from datetime import timedelta

import structlog

from service.contract import Draw, Limit, place_of
from service.engine.budgets import Budgets, LimitFeedback, ReservationRequest
from service.engine.calls import ServerUnavailable
from workers.runtime.budget_feedback import UNNAMED_PAUSE

log = structlog.get_logger(__name__)
PATIENCE = timedelta(seconds=2)
"""How long to try to reach Redis for a draw: callers have deadlines of their own."""

UNAVAILABLE = timedelta(seconds=1)
"""When to try again while Redis is unavailable."""


class CallBudget:
    """`share` is reserved for background work. `place` begins with PROVIDER/ACCOUNT; the rest of it is ignored."""

    def __init__(self, budgets: Budgets, share: float) -> None:
        self._budgets, self._share = budgets, share

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        """Returns zero if the tokens were taken, otherwise the time after which to try again. Without `urgent` the call
        counts as background work, as those of sweeps do."""
        # Urgent and background calls wait in separate queues of the budget.
        name = f"{place}/list" if urgent else f"{place}/list in the background"
        ask = ReservationRequest(name, 1, int(urgent), int(not urgent), tuple(draws))
        try:
            reserved = await self._budgets.reserve(place_of(place), self._share, [ask], PATIENCE)
        except ServerUnavailable as error:
            # Tokens may have been taken; if so, they count as spent.
            log.warning("budget not reachable, trying again", place=place, reason=str(error))
            return UNAVAILABLE
        (grant,) = reserved.grants
        return timedelta(0) if grant.urgent or grant.background else timedelta(milliseconds=max(1, grant.again))

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        """The provider throttled a call. All workers pause the limit for `wait`, or briefly where it named no time. The
        call drew on `others` as well, and one of those may have been the exhausted one."""
        until = time.monotonic() + (UNNAMED_PAUSE if wait is None else wait.total_seconds())

        def said() -> list[LimitFeedback]:
            pause = int(max(0.0, until - time.monotonic()) * 1000)
            return [
                LimitFeedback(limit, 1, pause=pause, strike=1),
                *(LimitFeedback(other, 0, strike=1) for other in others),
            ]

        await self._budgets.correct(place_of(place), said, PATIENCE)

    async def answered(self, place: str, limit: Limit, left: float | None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""
        said = LimitFeedback(limit, 1, -1 if left is None else left)
        await self._budgets.correct(place_of(place), [said], PATIENCE)
