"""Taking and attempting: look which lanes may be served, reserve tokens, take that many jobs, hand them to handlers.

Each pilot goes round this loop; batches fly on their own, so the next round trip overlaps with the work.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from service.contract import Draw, Job, Limit, Pause, Throttled, Undecodable, Verdict, decode_record, place_of
from service.engine.budgets import Ask, Budgets, Grant
from service.engine.engine import Shard
from service.engine.replies import DueLane, Look, TakenLane
from service.engine.rows import Settlement, Want
from service.engine.wakeups import WakeUps
from service.settings import Settings
from workers.handlers.protocol import NotCleared
from workers.handlers.registry import Registry
from workers.runtime.caps import Caps
from workers.runtime.clock import ServerClock
from workers.runtime.crew import Crew
from workers.runtime.feedback import Reports
from workers.runtime.flight import Flight, Flights
from workers.runtime.gate import Gate
from workers.runtime.outcomes import Outcome, judge, settlement, unreadable
from workers.runtime.pace import Pace
from workers.runtime.settler import Settler
from workers.runtime.tally import Tally

log = structlog.get_logger(__name__)
LANES_AT_ONCE = 8
LONGEST_SLEEP = 30.0


@dataclass(slots=True)
class Bench:
    """What the pilots of one shard work with."""

    shard: Shard
    budgets: Budgets
    registry: Registry
    settings: Settings
    worker: str
    crew: Crew
    caps: Caps
    clock: ServerClock
    gate: Gate
    reports: Reports
    settler: Settler
    flights: Flights
    wakeups: WakeUps
    group: asyncio.TaskGroup
    tally: Tally
    pace: Pace
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    # What one pilot found serves the others, until a wake-up says that there is more.
    found: "Found | None" = None


class Found(NamedTuple):
    """A look that left nothing over: at which wake-up it was made, and until when it holds without another one."""

    seen: int
    until: float


class Order(NamedTuple):
    """What is asked of each budget, and how many places are kept for it."""

    asks: dict[str, list[Ask]]
    places: int


class Pilot:
    def __init__(self, bench: Bench) -> None:
        self._b = bench

    async def run(self) -> None:
        """Go round until the worker stops."""
        b, crew, served = self._b, self._b.crew, False
        while not crew.stopping:
            if crew.room() <= 0:
                await crew.changed()
                continue
            if not served and (rest := self._known()) > 0:
                await b.wakeups.wait(b.wakeups.count, rest)
                continue
            # One pilot looks at a time, until it has its places: else one sets lanes aside for places that the other
            # then takes with other lanes, and the first in line are passed over again and again.
            async with b.looking:
                await b.pace.next()
                room, seen = crew.room(), b.wakeups.count
                if room <= 0 or (not served and self._known() > 0):
                    continue
                most = min(room, LANES_AT_ONCE)
                look = await b.shard.look(most)
                b.clock.heard(look.now)
                self._keep(look, seen, most)
                suspect = bool(look.alone) and crew.may_work_alone()
                order = None if suspect else self._order(look.lanes)
            served = bool(look.lanes)
            # Asked twice: while the budget is asked, another pilot may have begun.
            if suspect and await self._tokens_for(look.alone[1]) and crew.may_work_alone():
                async with crew.alone() as until:
                    await self._give_up(look.lanes)
                    await self._work_alone(until)
            elif look.lanes:
                await self._serve(look.lanes, order or self._order(look.lanes))
            else:
                await self._rest(look.upcoming, seen, waiting_alone=bool(look.alone))

    def _known(self) -> float:
        """Seconds for which nothing new is to be found, as far as the last look of any pilot says."""
        found = self._b.found
        return found.until - time.monotonic() if found is not None and found.seen == self._b.wakeups.count else 0.0

    def _keep(self, look: Look, seen: int, most: int) -> None:
        """Whoever served a lane looks again himself: what is left of it is no news."""
        left_over = len(look.lanes) >= most or look.alone
        self._b.found = None if left_over else Found(seen, time.monotonic() + self._until(look.upcoming))

    def _until(self, upcoming: int) -> float:
        return min(self._b.clock.until(upcoming) if upcoming else LONGEST_SLEEP, LONGEST_SLEEP)

    async def _rest(self, upcoming: int, seen: int, *, waiting_alone: bool) -> None:
        sleep = self._until(upcoming)
        await self._b.wakeups.wait(seen, min(sleep, 0.5) if waiting_alone else sleep)

    async def _give_up(self, lanes: Iterable[DueLane]) -> None:
        """Lanes that were looked at and are not served go back to where they were."""
        wants = [Want(lane.name, 0, 0, self._b.caps.of(lane.name)) for lane in lanes]
        if wants:
            await self._b.shard.take(self._b.worker, self._b.settings.worker.lease, wants)

    def _order(self, lanes: list[DueLane]) -> Order:
        """What to ask for, as far as there is room; the places are ours from now on."""
        b = self._b
        room, asks = b.crew.room(), dict[str, list[Ask]]()
        for lane in lanes:
            free = b.caps.of(lane.name) - lane.leased
            most = min(b.settings.worker.batch, free, lane.urgent + lane.background, room)
            if most > 0:
                room -= most
                ask = Ask(lane.name, most, lane.urgent, lane.background, b.registry.draws(lane.name), b.shard.number)
                asks.setdefault(place_of(lane.name), []).append(ask)
        places = sum(ask.most for wants in asks.values() for ask in wants)
        b.crew.enter(places)
        return Order(asks, places)

    async def _serve(self, lanes: list[DueLane], order: Order) -> None:
        b, asks = self._b, order.asks
        try:
            grants = await self._reserve(asks)
            wants = [
                Want(lane.name, grant.urgent, grant.background, b.caps.of(lane.name), grant.again)
                for lane in lanes
                for grant in (grants.get(lane.name, (Grant(0, 0, 0), 0))[0],)
            ]
            sent = time.monotonic()
            taken = await b.shard.take(b.worker, b.settings.worker.lease, wants)
            b.clock.heard(taken.now)
            for got in taken.lanes:
                self._start(got, sent, grants[got.lane][1])
            b.pace.stepped(sum(len(got.jobs) for got in taken.lanes))
            await self._return_unused(asks, grants, taken.lanes)
        finally:
            # What did not fly leaves here; what flies leaves when it lands.
            b.crew.leave(order.places)

    async def _reserve(self, asks: dict[str, list[Ask]]) -> dict[str, tuple[Grant, int]]:
        b = self._b
        share = b.settings.worker.background_share
        answers = await asyncio.gather(*(b.budgets.reserve(place, share, wants) for place, wants in asks.items()))
        return {
            ask.lane: (grant, answer.corrections)
            for wants, answer in zip(asks.values(), answers, strict=True)
            for ask, grant in zip(wants, answer.grants, strict=True)
        }

    async def _return_unused(
        self, asks: dict[str, list[Ask]], grants: dict[str, tuple[Grant, int]], taken: list[TakenLane]
    ) -> None:
        """Another worker was faster, or the lane was full: tokens for jobs that were not there go back."""
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
                await self._b.budgets.give_back(place, corrections, unused)

    def _start(self, lane: TakenLane, sent: float, corrections: int) -> None:
        """Put the jobs of one lane into the air, one batch for each kind."""
        b = self._b
        b.tally.taken += len(lane.jobs)
        draws = b.registry.draws(lane.lane)
        lease = b.settings.worker.lease.total_seconds()
        kinds: dict[str, list[Job]] = {}
        for name, text in zip(lane.jobs, lane.records, strict=True):
            try:
                job = Job(name, lane.fence, decode_record(text))
            except Undecodable as error:
                log.error("job can't be read and is set aside", job=name, lane=lane.lane, reason=str(error))
                b.settler.put(unreadable(name, lane.fence, lane.lane, str(error)))
                continue
            kinds.setdefault(job.record.kind, []).append(job)
        log.info("intent", lane=lane.lane, fence=lane.fence, count=len(lane.jobs), jobs=" ".join(lane.jobs))
        for kind, jobs in kinds.items():
            flight = Flight(lane.lane, jobs, draws, sent + lease * 0.9, b.gate, b.reports, len(lane.jobs))
            flight.corrections = corrections
            b.crew.enter(len(jobs))
            b.flights.begin(flight, b.group.create_task(self._fly(kind, flight)))

    async def _fly(self, kind: str, flight: Flight) -> None:
        b, began = self._b, time.monotonic()
        try:
            with structlog.contextvars.bound_contextvars(lane=flight.lane, fence=flight.fence, kind=kind):
                await self._attempt(kind, flight)
        finally:
            b.pace.flew(time.monotonic() - began)
            b.flights.end(flight)
            b.crew.leave(len(flight.jobs))
        await self._settle_account(flight)

    async def _attempt(self, kind: str, flight: Flight) -> None:
        """The one broad except of the runtime: whatever a handler raises is accounted for, job by job."""
        b = self._b
        limit = asyncio.timeout(b.settings.worker.attempt_timeout.total_seconds())
        try:
            async with limit:
                async for job, verdict in b.registry.handler(kind).attempt(flight):
                    self._land(flight, job, verdict)
            rest: Exception = RuntimeError("the handler gave no verdict")
        except asyncio.CancelledError:
            if not b.crew.stopping and not flight.lost:
                raise
            rest = NotCleared("the worker stops" if b.crew.stopping else "the lease could not be kept")
        except TimeoutError as error:
            rest = TimeoutError(f"no verdict within {b.settings.worker.attempt_timeout}") if limit.expired() else error
        except Exception as error:  # noqa: BLE001  # here an attempt is accounted for, whatever it raised
            rest = error
        for job in list(flight.open.values()):
            self._land(flight, job, rest)

    def _land(self, flight: Flight, job: Job, verdict: Verdict | Exception) -> None:
        b = self._b
        if job.id not in flight.open:
            return
        if isinstance(verdict, NotCleared):
            verdict = self._not_cleared(flight, job, verdict)
        elif isinstance(verdict, Throttled) and not verdict.unasked and not flight.told_pause and flight.draws:
            flight.tell(Pause(flight.draws[0].limit.name, verdict.retry_after))
        outcome, item = self._write_up(flight, job, verdict)
        if outcome.kind in ("retry", "refused", "dead"):
            log.warning(
                "attempt", deletion=job.deletion, job=job.id, target=job.target, outcome=outcome.kind,
                attempt=outcome.record.attempts, detail=outcome.note,
            )  # fmt: skip
        b.settler.put(item)
        del flight.open[job.id]

    def _not_cleared(self, flight: Flight, job: Job, verdict: NotCleared) -> NotCleared:
        # A call that may have been made has used its tokens.
        if job.id not in flight.called:
            for draw in flight.draws:
                flight.unused(draw.limit.name, draw.cost)
        if verdict.refused and verdict.deletion != job.deletion:
            # One deletion's owner forbids it: the others that were asked for in the same breath are asked for anew.
            return NotCleared(f"not cleared together with {verdict.deletion}")
        return verdict

    def _write_up(self, flight: Flight, job: Job, verdict: Verdict | Exception) -> tuple[Outcome, Settlement]:
        """A verdict that can't be written down is a failed attempt like any other, and is accounted for."""
        retry, now, called = self._b.settings.retry, self._b.clock.now_ms(), job.id in flight.called
        try:
            outcome = judge(job, verdict, retry, now)
            return outcome, settlement(job, flight.lane, outcome, called=called, of=flight.of)
        except Exception as error:  # noqa: BLE001  # here an attempt is accounted for, whatever was found
            outcome = judge(job, ValueError(f"its verdict can't be written down: {error!r}"), retry, now)
            return outcome, settlement(job, flight.lane, outcome, called=called, of=flight.of)

    async def _settle_account(self, flight: Flight) -> None:
        limits = {draw.limit.name: draw.limit for draw in flight.draws}
        back = flight.returned.items()
        unused = [(limits[name], tokens) for name, tokens in back if name in limits and tokens > 0]
        if unused:
            await self._b.budgets.give_back(place_of(flight.lane), flight.corrections, unused)

    async def _tokens_for(self, lane: str) -> bool:
        """Whether a suspect of this lane could be tried now: nobody empties his hands for a dry budget."""
        b = self._b
        draws = b.registry.draws(lane)
        ask = Ask(lane, 1, 1, 0, draws, b.shard.number)
        reserved = await b.budgets.reserve(place_of(lane), b.settings.worker.background_share, [ask])
        if reserved.grants[0].urgent:
            await b.budgets.give_back(place_of(lane), reserved.corrections, [(d.limit, d.cost) for d in draws])
            return True
        return False

    async def _work_alone(self, until: float) -> None:
        """One suspect after the other, with nothing else in this process."""
        b = self._b
        while time.monotonic() < until and not b.crew.stopping:
            look = await b.shard.look(0, alone=True)
            if not look.alone:
                return
            job, lane = look.alone
            draws: tuple[Draw, ...] = b.registry.draws(lane)
            ask = Ask(lane, 1, 1, 0, draws, b.shard.number)
            reserved = await b.budgets.reserve(place_of(lane), b.settings.worker.background_share, [ask])
            grant = reserved.grants[0]
            if not grant.urgent:
                return
            sent = time.monotonic()
            want = Want(lane, 1, 0, b.caps.of(lane), 0, job)
            taken = await b.shard.take(b.worker, b.settings.worker.lease, [want])
            if taken.lanes:
                log.info("trying alone", job=job, lane=lane)
                self._start(taken.lanes[0], sent, reserved.corrections)
                await b.crew.empty()
                await b.settler.drained()
            else:
                await b.budgets.give_back(place_of(lane), reserved.corrections, [(d.limit, d.cost) for d in draws])
