"""Batch that a test passes to a handler directly, as the runtime's is, with a log of what the handler requested."""

from collections.abc import Sequence

from service.contract import Draw, Feedback, Job
from workers.handlers.lane_meter import LaneMeter


class RecordingBatch:
    """`draws` is what the lane reserved for each job. Consent is given, unless `clear` is an exception."""

    def __init__(
        self, lane: str, jobs: Sequence[Job], draws: Sequence[Draw] = (), *, clear: Exception | None = None
    ) -> None:
        self.lane, self.jobs, self.draws, self._clear = lane, jobs, draws, clear
        self.cleared: list[str] = []
        self.told: list[Feedback] = []
        self.meter = LaneMeter(draws, len(jobs), self.report_quota)

    async def clear(self, *jobs: Job) -> None:
        if self._clear is not None:
            raise self._clear
        self.cleared += [job.id for job in jobs]

    def report_quota(self, feedback: Feedback) -> None:
        self.told.append(feedback)

    def unused(self, limit: str, tokens: float = 1.0) -> None:
        raise AssertionError(f"a handler that counts its calls returns nothing by itself: {limit}, {tokens}")

    @property
    def returned(self) -> dict[str, float]:
        """What the runtime returns after the batch, whatever its verdicts."""
        return self.meter.close()

    @property
    def spent(self) -> dict[str, float]:
        """What stays drawn."""
        left = {
            draw.limit.name: draw.cost * len(self.jobs) - self.returned.get(draw.limit.name, 0.0) for draw in self.draws
        }
        return {name: tokens for name, tokens in left.items() if tokens}
