"""Call meters, which draw the tokens of each Azure call: from a batch's reservation, or from the shared budgets.
The latter waits for tokens for a while; otherwise a long list would start again because of one page."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from service.contract import Draw
from workers.handlers.components import CallBudgets
from workers.handlers.lane_meter import LaneMeter
from workers.providers.azure.errors import NO_ROOM, AzureError
from workers.providers.azure.model import AzureScope

PATIENCE: Final = timedelta(minutes=2)
"""Longest wait for tokens of a call outside of lanes."""


class BatchCallMeter:
    """Draws on the tokens that were reserved for a batch."""

    def __init__(self, meter: LaneMeter) -> None:
        self._meter = meter

    async def draw(self, draws: Sequence[Draw]) -> None:
        if not self._meter.spend(draws):
            raise AzureError("throttled", "budget", NO_ROOM, "more calls than were reserved for", after=timedelta(0))

    async def answered(self, draw: Draw, left: float | None) -> None:
        self._meter.answered(draw.limit.name, left, draw.cost)

    async def refused(self, draw: Draw, wait: timedelta | None) -> None:
        self._meter.refused(draw.limit.name, wait, draw.cost)


class BudgetCallMeter:
    """Draws on the shared budgets for each call, as background work unless `urgent`. Without a quota nothing is
    counted, as in CLI commands."""

    def __init__(
        self, where: AzureScope, quota: CallBudgets | None, patience: timedelta = PATIENCE, *, urgent: bool = False
    ) -> None:
        self._where, self._quota, self._patience, self._urgent = where, quota, patience, urgent

    async def draw(self, draws: Sequence[Draw]) -> None:
        left, quota = self._patience, self._quota
        while quota is not None and (wait := await quota.draw(self._where.budget, draws, urgent=self._urgent)):
            if wait > left:
                said = f"the shared budget of subscription {self._where.subscription} has no room for it yet"
                raise AzureError("throttled", "budget", NO_ROOM, said, after=wait)
            left -= wait
            await asyncio.sleep(wait.total_seconds())

    async def answered(self, draw: Draw, left: float | None) -> None:
        if self._quota is not None:
            await self._quota.answered(self._where.budget, draw.limit, left)

    async def refused(self, draw: Draw, wait: timedelta | None) -> None:
        if self._quota is not None:
            await self._quota.refused(self._where.budget, draw.limit, wait)
