"""Attempt loop: finds lanes with due jobs, reserves tokens, takes that many jobs and runs their handlers.

Several loops run for each shard. Every batch runs in a task of its own, so the next round trip overlaps with the work.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from service.contract import (
    Blocked,
    Draw,
    Found,
    Job,
    Limit,
    Pause,
    Pending,
    Refused,
    Throttled,
    Undecodable,
    Verdict,
    decode_job_record,
    place_of,
)
from service.engine.budgets import Budgets, ReservationRequest, TokenGrant
from service.engine.late_targets import bounds_reached, lay_out_late_targets
from service.engine.plan_layout import InvalidPlan
from service.engine.script_arguments import JobSettlement, LaneRequest, LateTargets
from service.engine.script_replies import DueLane, DueLanes, TakenLane
from service.engine.shard import Shard
from service.engine.wakeups import WakeUps
from service.settings import Settings
from workers.handlers.protocol import NotCleared
from workers.handlers.registry import HandlerRegistry
from workers.runtime.batch_delay import BatchDelay
from workers.runtime.budget_feedback import BudgetFeedback
from workers.runtime.clearance import Clearance
from workers.runtime.counters import WorkerCounters
from workers.runtime.leased_batch import LateFind, LeasedBatch, LeasedBatches
from workers.runtime.retry_policy import Outcome, outcome_of, settlement, unreadable_settlement
from workers.runtime.server_clock import ServerClock
from workers.runtime.settlement_writer import SettlementWriter
from workers.runtime.slots import LaneCaps, WorkerSlots

log = structlog.get_logger(__name__)
LANES_AT_ONCE = 8
LONGEST_SLEEP = 30.0
PROVEN_GONE_ROUNDS = 3
"""Looks that find nothing but targets of the deletion before a person has to act."""

APPEND_AGAIN = timedelta(seconds=1)
"""How long a job waits whose late targets could not be added just now."""


@dataclass(slots=True)
class WorkerContext:
    """State and clients that the attempt loops of one shard share."""

    shard: Shard
    budgets: Budgets
    registry: HandlerRegistry
    settings: Settings
    worker: str
    slots: WorkerSlots
    lane_caps: LaneCaps
    clock: ServerClock
    clearance: Clearance
    feedback: BudgetFeedback
    settlements: SettlementWriter
    batches: LeasedBatches
    wakeups: WakeUps
    group: asyncio.TaskGroup
    counters: WorkerCounters
    delay: BatchDelay
    look_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Shared by the loops, until a wake-up announces new jobs.
    empty_look: "EmptyLook | None" = None


class EmptyLook(NamedTuple):
    """A look at the lanes that found no more than is being served. `seen` is the number of wake-ups before it; without
    another wake-up it is valid until `until`."""

    seen: int
    until: float


class BudgetRequests(NamedTuple):
    """Reservations to request, by budget, and the number of slots that were acquired for them."""

    asks: dict[str, list[ReservationRequest]]
    slots: int


class AttemptLoop:
    def __init__(self, ctx: WorkerContext) -> None:
        self._ctx = ctx

    async def run(self) -> None:
        """Runs until the worker stops."""
        ctx, slots, served = self._ctx, self._ctx.slots, False
        while not slots.stopping:
            if slots.free() <= 0:
                await slots.wait_changed()
                continue
            if not served and (rest := self._idle_for()) > 0:
                await ctx.wakeups.wait(ctx.wakeups.count, rest)
                continue
            # One loop looks at a time, until it has acquired its slots. Otherwise two loops would reserve lanes for the
            # same free slots, and the lanes that have waited longest would be passed over again and again.
            async with ctx.look_lock:
                await ctx.delay.before_step()
                room, seen = slots.free(), ctx.wakeups.count
                if room <= 0 or (not served and self._idle_for() > 0):
                    continue
                most = min(room, LANES_AT_ONCE)
                look = await ctx.shard.due_lanes(most)
                ctx.clock.heard(look.now)
                self._remember_look(look, seen, most)
                suspect = bool(look.alone) and slots.may_run_alone()
                requests = None if suspect else self._requests_for(look.lanes)
            served = bool(look.lanes)
            # Checked again: another loop may have started while the budget was read.
            if suspect and await self._has_tokens(look.alone[1]) and slots.may_run_alone():
                async with slots.exclusive() as until:
                    await self._return_lanes(look.lanes)
                    await self._try_suspects(until)
            elif look.lanes:
                await self._serve(look.lanes, requests or self._requests_for(look.lanes))
            else:
                await self._sleep(look.upcoming, seen, waiting_alone=bool(look.alone))

    def _idle_for(self) -> float:
        """Seconds until a new look is worthwhile, according to the last look of any loop."""
        found = self._ctx.empty_look
        return found.until - time.monotonic() if found is not None and found.seen == self._ctx.wakeups.count else 0.0

    def _remember_look(self, look: DueLanes, seen: int, most: int) -> None:
        """A loop that serves a lane looks again by itself, so jobs left in that lane need no wake-up."""
        left_over = len(look.lanes) >= most or look.alone
        self._ctx.empty_look = (
            None if left_over else EmptyLook(seen, time.monotonic() + self._sleep_time(look.upcoming))
        )

    def _sleep_time(self, upcoming: int) -> float:
        return min(self._ctx.clock.until(upcoming) if upcoming else LONGEST_SLEEP, LONGEST_SLEEP)

    async def _sleep(self, upcoming: int, seen: int, *, waiting_alone: bool) -> None:
        sleep = self._sleep_time(upcoming)
        await self._ctx.wakeups.wait(seen, min(sleep, 0.5) if waiting_alone else sleep)

    async def _return_lanes(self, lanes: Iterable[DueLane]) -> None:
        """Lanes that were looked at but are not served return to their place in the order."""
        wants = [LaneRequest(lane.name, 0, 0, self._ctx.lane_caps.of(lane.name)) for lane in lanes]
        if wants:
            await self._ctx.shard.take(self._ctx.worker, self._ctx.settings.worker.lease, wants)

    def _requests_for(self, lanes: list[DueLane]) -> BudgetRequests:
        """As many as there are free slots; the slots are acquired here."""
        ctx = self._ctx
        room, asks = ctx.slots.free(), dict[str, list[ReservationRequest]]()
        for lane in lanes:
            free = ctx.lane_caps.of(lane.name) - lane.leased
            most = min(ctx.settings.worker.batch, free, lane.urgent + lane.background, room)
            if most > 0:
                room -= most
                ask = ReservationRequest(
                    lane.name, most, lane.urgent, lane.background, ctx.registry.draws(lane.name), ctx.shard.number
                )
                asks.setdefault(place_of(lane.name), []).append(ask)
        needed = sum(ask.most for wants in asks.values() for ask in wants)
        ctx.slots.acquire(needed)
        return BudgetRequests(asks, needed)

    async def _serve(self, lanes: list[DueLane], requests: BudgetRequests) -> None:
        ctx, asks = self._ctx, requests.asks
        try:
            grants = await self._reserve(asks)
            wants = [
                LaneRequest(lane.name, grant.urgent, grant.background, ctx.lane_caps.of(lane.name), grant.again)
                for lane in lanes
                for grant in (grants.get(lane.name, (TokenGrant(0, 0, 0), 0))[0],)
            ]
            sent = time.monotonic()
            taken = await ctx.shard.take(ctx.worker, ctx.settings.worker.lease, wants)
            ctx.clock.heard(taken.now)
            for got in taken.lanes:
                self._start_batches(got, sent, grants[got.lane][1])
            ctx.delay.step_done(sum(len(got.jobs) for got in taken.lanes))
            await self._return_unused(asks, grants, taken.lanes)
        finally:
            # Every started batch has acquired slots of its own and releases them when it ends.
            ctx.slots.release(requests.slots)

    async def _reserve(self, asks: dict[str, list[ReservationRequest]]) -> dict[str, tuple[TokenGrant, int]]:
        ctx = self._ctx
        share = ctx.settings.worker.background_share
        answers = await asyncio.gather(*(ctx.budgets.reserve(place, share, wants) for place, wants in asks.items()))
        return {
            ask.lane: (grant, answer.corrections)
            for wants, answer in zip(asks.values(), answers, strict=True)
            for ask, grant in zip(wants, answer.grants, strict=True)
        }

    async def _return_unused(
        self,
        asks: dict[str, list[ReservationRequest]],
        grants: dict[str, tuple[TokenGrant, int]],
        taken: list[TakenLane],
    ) -> None:
        """Returns tokens for jobs that were not taken: another worker was faster, or the lane had reached its cap."""
        got = {lane.lane: len(lane.jobs) for lane in taken}
        for place, wants in asks.items():
            unused: list[tuple[Limit, float]] = []
            corrections = 0
            for ask in wants:
                grant, corrections = grants[ask.lane]
                left = grant.urgent + grant.background - got.get(ask.lane, 0)
                if left > 0:
                    unused += [(draw.limit, draw.cost * left) for draw in ask.draws]
            if unused:
                await self._ctx.budgets.return_unused(place, corrections, unused)

    def _start_batches(self, lane: TakenLane, sent: float, corrections: int) -> None:
        """Starts the jobs taken from one lane, one batch for each kind."""
        ctx = self._ctx
        ctx.counters.taken += len(lane.jobs)
        draws = ctx.registry.draws(lane.lane)
        lease = ctx.settings.worker.lease.total_seconds()
        kinds: dict[str, list[Job]] = {}
        for name, text in zip(lane.jobs, lane.records, strict=True):
            try:
                job = Job(name, lane.fence, decode_job_record(text))
            except Undecodable as error:
                log.error("job can't be read and is set aside", job=name, lane=lane.lane, reason=str(error))
                ctx.settlements.put(unreadable_settlement(name, lane.fence, lane.lane, str(error)))
                continue
            kinds.setdefault(job.record.kind, []).append(job)
        log.info("intent", lane=lane.lane, fence=lane.fence, count=len(lane.jobs), jobs=" ".join(lane.jobs))
        for kind, jobs in kinds.items():
            batch = LeasedBatch(lane.lane, jobs, draws, sent + lease * 0.9, ctx.clearance, ctx.feedback, len(lane.jobs))
            batch.corrections = corrections
            ctx.slots.acquire(len(jobs))
            ctx.batches.begin(batch, ctx.group.create_task(self._run_batch(kind, batch)))

    async def _run_batch(self, kind: str, batch: LeasedBatch) -> None:
        ctx, began = self._ctx, time.monotonic()
        try:
            with structlog.contextvars.bound_contextvars(lane=batch.lane, fence=batch.fence, kind=kind):
                await self._attempt(kind, batch)
        finally:
            ctx.delay.finished(time.monotonic() - began)
            ctx.batches.end(batch)
            ctx.slots.release(len(batch.jobs))
        await self._return_tokens(batch)

    async def _attempt(self, kind: str, batch: LeasedBatch) -> None:
        """Runs the handler, then adds the late targets that it found. Whatever is raised counts as the result of every
        job that has no verdict yet."""
        rest = await self._error_of(batch, self._run_handler(kind, batch))
        # Time to append is left only if the handler was not cancelled.
        found = () if batch.lost or isinstance(rest, NotCleared) else batch.found
        for job in list(batch.open.values()):
            if job.id not in found:
                self._record(batch, job, rest or RuntimeError("the handler gave no verdict"))
        if found:
            rest = await self._error_of(batch, self._add_late_targets(batch))
            for job in list(batch.open.values()):
                self._record(batch, job, rest or RuntimeError("its late targets were not added"))

    async def _error_of(self, batch: LeasedBatch, work: Awaitable[None]) -> Exception | None:
        """What the work raised; this is the only broad `except` around handlers."""
        ctx = self._ctx
        try:
            await work
        except asyncio.CancelledError:
            if not ctx.slots.stopping and not batch.lost:
                raise
            return NotCleared("the worker stops" if ctx.slots.stopping else "the lease could not be kept")
        except Exception as error:  # noqa: BLE001  # here an attempt is accounted for, whatever it raised
            return error
        return None

    async def _run_handler(self, kind: str, batch: LeasedBatch) -> None:
        ctx = self._ctx
        limit = asyncio.timeout(ctx.settings.worker.attempt_timeout.total_seconds())
        try:
            async with limit:
                async for job, verdict in ctx.registry.handler(kind).attempt(batch):
                    if job.id not in batch.found:
                        self._record(batch, job, verdict)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"no verdict within {ctx.settings.worker.attempt_timeout}") from None
            raise

    async def _add_late_targets(self, batch: LeasedBatch) -> None:
        """One job after the other, because a deletion takes one append at a time."""
        for find in batch.found.values():
            try:
                verdict = await self._append(find)
            except InvalidPlan as error:
                verdict = error
            if verdict is None:
                del batch.open[find.job.id]
            else:
                self._record(batch, _looked(find, verdict), verdict)

    async def _append(self, find: LateFind) -> Verdict | Exception | None:
        """The verdict of a job whose targets were not added; None where it is settled."""
        ctx, job, found = self._ctx, find.job, find.found
        rows = lay_out_late_targets(found.targets, job.record.urgent, ctx.settings.retry.best_effort_deadline)
        answer = await ctx.settlements.append(LateTargets(find.settlement, rows))
        match answer.state:
            case "added":
                return None
            case "known":
                why = (
                    f"{found.detail}: each of them is in the deletion already; remove them by hand, or release the "
                    f"object without them (`knell jobs abandon`)"
                )
                # At first a provider may still show what was just removed.
                return Blocked(why, person=job.record.waits >= PROVEN_GONE_ROUNDS)
            case "bounds":
                return Refused(bounds_reached(answer.targets, answer.stages))
            case "misplaced":
                return InvalidPlan("only a job in the chain 'finally' may find more targets")
            case "lost":
                return NotCleared("the lease is over")
            case _:
                # Another job of the deletion adds targets, or the deletion is being withdrawn.
                why = f"{found.detail}: added later, the deletion is {answer.state}"
                return Pending(APPEND_AGAIN, why, resume=job.resume, still=True)

    def _record(self, batch: LeasedBatch, job: Job, verdict: Verdict | Exception) -> None:
        ctx = self._ctx
        if job.id not in batch.open:
            return
        if isinstance(verdict, NotCleared):
            verdict = self._hand_back(batch, job, verdict)
        elif isinstance(verdict, Throttled) and not verdict.unasked and not batch.reported_pause and batch.draws:
            batch.report_quota(Pause(batch.draws[0].limit.name, verdict.retry_after))
        outcome, item = self._outcome(batch, job, verdict)
        if outcome.kind == "found" and isinstance(verdict, Found):
            batch.found[job.id] = LateFind(job, verdict, item)
            return
        if outcome.kind in ("retry", "refused", "dead"):
            log.warning(
                "attempt", deletion=job.deletion, job=job.id, target=job.target, outcome=outcome.kind,
                attempt=outcome.record.attempts, detail=outcome.note,
            )  # fmt: skip
        ctx.settlements.put(item)
        del batch.open[job.id]

    def _hand_back(self, batch: LeasedBatch, job: Job, verdict: NotCleared) -> NotCleared:
        batch.hand_back(job)
        if verdict.refused and verdict.deletion != job.deletion:
            # Only one deletion was refused: the jobs of the others are checked again in their next attempt.
            return NotCleared(f"not cleared together with {verdict.deletion}")
        return verdict

    def _outcome(self, batch: LeasedBatch, job: Job, verdict: Verdict | Exception) -> tuple[Outcome, JobSettlement]:
        """A verdict that can't be stored counts as a failed attempt."""
        retry, now, called = self._ctx.settings.retry, self._ctx.clock.now_ms(), job.id in batch.called
        try:
            outcome = outcome_of(job, verdict, retry, now)
            return outcome, settlement(job, batch.lane, outcome, called=called, of=batch.of)
        except Exception as error:  # noqa: BLE001  # here an attempt is accounted for, whatever was found
            outcome = outcome_of(job, ValueError(f"its verdict can't be written down: {error!r}"), retry, now)
            return outcome, settlement(job, batch.lane, outcome, called=called, of=batch.of)

    async def _return_tokens(self, batch: LeasedBatch) -> None:
        limits = {draw.limit.name: draw.limit for draw in batch.draws}
        back = batch.returned().items()
        unused = [(limits[name], tokens) for name, tokens in back if name in limits and tokens > 0]
        if unused:
            await self._ctx.budgets.return_unused(place_of(batch.lane), batch.corrections, unused)

    async def _has_tokens(self, lane: str) -> bool:
        """Whether a suspect job of this lane could be tried now: emptying all slots for an exhausted budget is
        futile."""
        ctx = self._ctx
        draws = ctx.registry.draws(lane)
        ask = ReservationRequest(lane, 1, 1, 0, draws, ctx.shard.number)
        reserved = await ctx.budgets.reserve(place_of(lane), ctx.settings.worker.background_share, [ask])
        if reserved.grants[0].urgent:
            await ctx.budgets.return_unused(place_of(lane), reserved.corrections, [(d.limit, d.cost) for d in draws])
            return True
        return False

    async def _try_suspects(self, until: float) -> None:
        """Tries suspect jobs one after the other, with no other job in this process."""
        ctx = self._ctx
        while time.monotonic() < until and not ctx.slots.stopping:
            look = await ctx.shard.due_lanes(0, alone=True)
            if not look.alone:
                return
            job, lane = look.alone
            draws: tuple[Draw, ...] = ctx.registry.draws(lane)
            ask = ReservationRequest(lane, 1, 1, 0, draws, ctx.shard.number)
            reserved = await ctx.budgets.reserve(place_of(lane), ctx.settings.worker.background_share, [ask])
            grant = reserved.grants[0]
            if not grant.urgent:
                return
            sent = time.monotonic()
            want = LaneRequest(lane, 1, 0, ctx.lane_caps.of(lane), 0, job)
            taken = await ctx.shard.take(ctx.worker, ctx.settings.worker.lease, [want])
            if taken.lanes:
                log.info("trying alone", job=job, lane=lane)
                self._start_batches(taken.lanes[0], sent, reserved.corrections)
                await ctx.slots.wait_empty()
                await ctx.settlements.drained()
            else:
                await ctx.budgets.return_unused(
                    place_of(lane), reserved.corrections, [(d.limit, d.cost) for d in draws]
                )


def _looked(find: LateFind, verdict: Verdict | Exception) -> Job:
    """The job that found late targets which were not added: where they are known or too many, its next look must know
    that this one found something."""
    if not isinstance(verdict, Blocked | Refused):
        return find.job
    return Job(find.job.id, find.job.fence, replace(find.job.record, resume=find.found.resume))
