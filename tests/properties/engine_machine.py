"""Any order of the engine's moves on one shard, with crashes, zombies, repeats, hands and clock jumps; the laws are
checked on the keys after every step, and at the end everything that was published must get done."""

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from service.contract import Event, Gone, Job, Record, decode_event
from service.settings import RetrySettings
from service.stream.arrange import Arranged, arrange
from service.stream.engine import MOMENT, Settlement, Shard, Taken, Want, flat, ms, rows
from service.stream.scripts import Scripts
from tests.properties import engine_laws as laws
from tests.properties import shapes
from tests.properties.clock import JumpingClock
from tests.properties.history import History
from tests.properties.laws import Broken, require
from tests.properties.rig import Call, Rig
from tests.properties.world import World, read_world
from workers.runtime.outcomes import judge, settlement, unreadable

T = TypeVar("T")
LONG = timedelta(hours=2)
"""Longer than any lease, wait or recheck here."""

NEWEST = 2
"""The version that some of the machine's processes know already."""

RETRY = RetrySettings(held_after=2)
DEADLINE = timedelta(seconds=45)
_record = msgspec.json.Decoder(type=Record, strict=False).decode


@dataclass(frozen=True, slots=True)
class InHand:
    """A job that some worker took and may still believe to be its own."""

    worker: str
    lane: str
    job: Job


@dataclass(slots=True)
class Writing:
    """A plan that is being written in chunks, and perhaps never finished."""

    event: Event
    entry: str
    arranged: Arranged
    number: int = 0
    offset: int = 0


class EngineMachine(RuleBasedStateMachine):
    """`rig`, `scripts` and the number of the shard are set by whoever runs it."""

    rig: ClassVar[Rig]
    scripts: ClassVar[Scripts | None] = None
    shard_number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = JumpingClock()
        self.furthest = self.clock.at
        self.caller = self.rig.caller(self.clock, self.scripts)
        self.shard = Shard(self.caller, self.rig.keys(), self.shard_number)
        self.history = History(shapes.CAP)
        self.hands: list[tuple[str, Event]] = []
        self.writing: list[Writing] = []
        self.taken: list[InHand] = []
        self.over: list[InHand] = []
        self.whole = False
        self.world = World([])

    @initialize(plans=st.lists(shapes.PLAN, min_size=1, max_size=3))
    def arrive(self, plans: list[list[shapes.Piece]]) -> None:
        self.run(self.shard.attend("history", ""))
        for number, pieces in enumerate(plans):
            self._publish([number])
            self._read_world()
            entry, event = self._in_hand(0)
            self._plan(Writing(event, entry, _arranged(event, pieces)), size=1000)
            self._read_world()

    # ---- events and plans

    @rule(numbers=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def publish(self, numbers: list[int]) -> None:
        self._publish(numbers)

    def _publish(self, numbers: list[int]) -> None:
        events = [shapes.event(number) for number in numbers]
        known = set(self.world.deletions)
        for answer, event in zip(self.run(self.shard.publish(events)), events, strict=True):
            new = event.deletion not in known
            known.add(event.deletion)
            self.history.counts["published"] += new
            require(laws.ANSWER, (answer.state == "added") == new, f"{event.deletion}: {answer}")

    @rule(planner=shapes.PLANNER, count=st.integers(1, 3))
    def read(self, planner: str, count: int) -> None:
        self.run(self._read(planner, count))

    @rule(planner=shapes.PLANNER)
    def claim(self, planner: str) -> None:
        """The planner that had it has gone silent."""
        self.run(self._claim(planner))

    @rule(which=shapes.INDEX, pieces=shapes.PLAN, zombie=st.booleans())
    def plan(self, which: int, pieces: list[shapes.Piece], zombie: bool) -> None:
        """A zombie will come with another plan for the same entry later."""
        entry, event = self._in_hand(which, keep=zombie)
        self._read_world()
        self._plan(Writing(event, entry, _arranged(event, pieces)), size=1000)

    @rule(which=shapes.INDEX, pieces=shapes.PLAN)
    def begin_to_plan(self, which: int, pieces: list[shapes.Piece]) -> None:
        entry, event = self._in_hand(which, keep=True)
        self._read_world()
        writing = Writing(event, entry, _arranged(event, pieces))
        self.writing.append(writing)
        self._plan(writing, size=2)

    @rule(which=shapes.INDEX)
    def write_on(self, which: int) -> None:
        if self.writing:
            self._plan(self.writing[which % len(self.writing)], size=2)

    @rule(most=st.integers(1, 4))
    def open(self, most: int) -> None:
        self.run(self.shard.open(most))

    @rule(which=shapes.INDEX, where=st.sampled_from(("held", "newer", "deletion")))
    def hold(self, which: int, where: str) -> None:
        entry, event = self._in_hand(which)
        row = (
            entry,
            "newer" if where == "newer" else "held",
            "for a test",
            event.deletion if where == "deletion" else "",
            flat(event),
        )
        self.history.counts["kept"] += self.run(self.shard.hold([row]))

    @rule(which=shapes.INDEX, replay=st.booleans())
    def unhold(self, which: int, replay: bool) -> None:
        held = sorted(self.world.scores("held"))
        if held:
            self._unhold(held[which % len(held)], replay=replay)

    # ---- taking and settling

    @rule(most=st.integers(1, 4), alone=st.booleans())
    def look(self, most: int, alone: bool) -> None:
        self._look(most, alone=alone)

    @rule(
        worker=shapes.WORKER,
        lanes=st.lists(shapes.LANE, min_size=1, max_size=3, unique=True),
        most=st.integers(0, 3),
        again=st.sampled_from((0, 0, 0, 4000)),
        lease=shapes.LEASE,
        version=st.sampled_from((1, NEWEST)),
    )
    def take(self, worker: str, lanes: list[str], most: int, again: int, lease: timedelta, version: int) -> None:
        self._take(worker, [Want(lane, most, most, shapes.CAP, again) for lane in lanes], lease, version)

    @rule(worker=shapes.WORKER, lease=shapes.LEASE)
    def take_alone(self, worker: str, lease: timedelta) -> None:
        self._take_alone(worker, lease)

    @rule(worker=shapes.WORKER, picks=st.lists(st.tuples(shapes.INDEX, shapes.VERDICT), min_size=1, max_size=4))
    def settle(self, worker: str, picks: list[tuple[int, str]]) -> None:
        """Whatever this worker ever took, in hand or not any more."""
        mine = [one for one in self.taken if one.worker == worker]
        if not any(map(self._is_live, mine)):
            self._take(
                worker, [Want(lane, 2, 2, shapes.CAP) for lane in shapes.ALL_LANES], timedelta(seconds=60), NEWEST
            )
            self._read_world()
            mine = [one for one in self.taken if one.worker == worker]
        if mine:
            self._settle(worker, [(mine[-1 - which % len(mine)], verdict) for which, verdict in picks])

    @rule(worker=shapes.WORKER, verdict=shapes.VERDICT)
    def serve(self, worker: str, verdict: str) -> None:
        """What a worker does all day."""
        self._read_world()
        look = self._look(4)
        self._take(worker, [Want(lane, 3, 3, shapes.CAP) for lane in look], timedelta(seconds=60), NEWEST)
        self._read_world()
        fresh = [one for one in self.taken if one.worker == worker and self._is_live(one)]
        if fresh:
            self._settle(worker, [(one, verdict) for one in fresh])

    @rule(times=st.integers(1, 4))
    def work_on(self, times: int) -> None:
        for _ in range(times):
            self.run(self.shard.open())
            self.serve("w0", "gone")
            self.clock.jump(timedelta(seconds=1))

    @rule(worker=shapes.WORKER, lease=shapes.LEASE)
    def renew(self, worker: str, lease: timedelta) -> None:
        mine = [one for one in self.taken if one.worker == worker]
        batches = sorted({(one.lane, one.job.fence) for one in mine})
        _, strangers = self.run(self.shard.renew(worker, lease, batches, patience=lease))
        lost = [fence for lane, fence in batches if self.world.batches.get((lane, fence), (None,))[0] != worker]
        require(laws.ZOMBIE, strangers == lost, f"lost were {lost}, told were {strangers}")
        for one in mine:
            kept = one.job.fence in strangers or self._is_live(one) or one in self.over
            require(laws.WHOLE, kept, f"{one} was told to be kept")

    @rule(silence=st.sampled_from((10, 60)), deaths=st.integers(1, 2), most=st.integers(1, 4), late=st.booleans())
    def reclaim(self, silence: int, deaths: int, most: int, late: bool) -> None:
        if late:
            self.clock.jump(timedelta(seconds=61))
        answer = self.run(self.shard.reclaim(deaths=deaths, silence=timedelta(seconds=silence), most=most))
        self.history.counts["reclaimed"] += len(answer.given_back)
        self.history.counts["set_aside"] += len(answer.set_aside)

    # ---- by hand

    @rule(which=shapes.INDEX)
    def retry(self, which: int) -> None:
        if self.world.jobs:
            self.run(self.shard.retry(_pick(self.world.jobs, which), "hand"))

    @rule(which=shapes.INDEX)
    def abandon(self, which: int) -> None:
        if self.world.jobs:
            job = _pick(self.world.jobs, which)
            word = self.run(self.shard.abandon(job, "hand"))
            self.history.counts["abandoned"] += word == "abandoned" and self.world.unfinished(job)
            self.over += [one for one in self.taken if one.job.id == job]

    @rule(lane=st.sampled_from((*shapes.ALL_LANES, "*")), stop=st.booleans())
    def pause(self, lane: str, stop: bool) -> None:
        self.run(self.shard.pause(lane, stop=stop, who="hand"))

    @rule(place=st.sampled_from(("sim/a", "sim/b")))
    def wake(self, place: str) -> None:
        self.run(self.shard.wake(place))
        self._read_world()
        waiting = [lane for lane in self.world.fields("dry") if lane.startswith(place)]
        require(laws.SERVED, not waiting, f"{waiting} still wait for a budget that has tokens")

    @rule(which=shapes.INDEX, jobs=st.integers(1, 3))
    def a_hand_takes_a_job_from_its_place(self, which: int, jobs: int) -> None:
        """The janitor finds it, however little it does at a time."""
        queued = {job: lane for lane in self.world.lanes for job in self.world.queued(lane)}
        if queued:
            job = _pick(queued, which)
            for side in ("", ":urgent"):
                self._hand("ZREM", f"lane:{queued[job]}{side}", job)
            self.history.counts["requeued"] += 1
            self._janitor(jobs=jobs)

    @rule(which=shapes.INDEX, how=st.sampled_from(("XACK", "XDEL")))
    def a_hand_takes_an_entry_from_the_stream(self, which: int, how: str) -> None:
        if self.world.entries:
            entry = _pick(self.world.entries, which)
            self._hand(how, "events", *(["planners"] if how == "XACK" else []), entry)
            self._janitor()
            self._read_world()
            for deletion, record in self.world.deletions.items():
                if record.get("state") == "published":
                    require(
                        laws.EVENTS, self._under_way(record["entry"]), f"{deletion} is not read by anyone: {record}"
                    )

    @rule(which=shapes.INDEX)
    def a_hand_forgets_that_a_stage_opens(self, which: int) -> None:
        opening = self.world.scores("opening")
        if opening:
            stage = _pick(opening, which)
            self._hand("ZREM", "opening", stage)
            self._janitor()
            self._read_world()
            require(laws.LOST, stage in self.world.scores("opening"), f"{stage} is not opened")

    @rule(which=shapes.INDEX)
    def a_newer_version_writes_a_job(self, which: int) -> None:
        if self.world.jobs:
            job = _pick(self.world.jobs, which)
            plan, _, number = job.rpartition(".")
            self._hand("HSET", f"job:{plan}", number, msgspec.json.encode(self.world.jobs[job] | {"v": NEWEST}))

    # ---- what goes on by itself

    @rule(seconds=st.sampled_from(shapes.SECONDS))
    def jump(self, seconds: int) -> None:
        self.clock.jump(timedelta(seconds=seconds))

    @rule(version=st.sampled_from((1, NEWEST)), jobs=st.integers(1, 3))
    def janitor(self, version: int, jobs: int) -> None:
        self._janitor(version=version, jobs=jobs)

    @rule(most=st.integers(1, 4), after=st.sampled_from((0, 900, 86_400)))
    def expire(self, most: int, after: int) -> None:
        retention = timedelta(seconds=after)
        self.run(self.shard.expire(finished=retention, audit=retention, audit_entries=100, lanes=retention, most=most))
        self._read_world()
        self.history.forget({deletion for deletion in self.history.finished if deletion not in self.world.deletions})

    @rule()
    def survey(self) -> None:
        self.run(self.shard.survey())
        self._read_world()
        stats, world = self.world.fields("stats"), self.world
        for name, real in (
            ("queued", sum(len(world.queued(lane)) for lane in world.lanes)),
            ("leased", sum(len(leases) for leases in world.leases.values())),
            ("open", len(world.scores("open"))),
            ("held", len(world.scores("held"))),
            ("aside", len(world.scores("dead"))),
            ("alone", len(world.scores("alone"))),
            ("newer", len(world.scores("newer"))),
            ("events", len(world.entries)),
        ):
            require(laws.COUNTS, int(stats[name]) == real, f"stats {name}: {stats[name]}, really {real}")

    @rule(back=st.integers(0, 12))
    def say_it_again(self, back: int) -> None:
        """An answer got lost, and the call is sent once more, perhaps much later."""
        if back < len(self.caller.calls):
            call = self.caller.calls[-1 - back]
            answer = self.run(self.caller.again(call))
            require(laws.REPEAT, self._is_same(call, answer), f"{call.name}: {call.answer!r} became {answer!r}")
            before = self.world
            self._read_world()
            require(laws.REPEAT, self.world == before, f"{call.name}: {_difference(before, self.world)}")

    # ---- what must hold

    @invariant()
    def laws_hold(self) -> None:
        self._read_world()
        for law in laws.LAWS:
            for name, what in law(self.world, self.history):
                raise Broken(name, what)
        self.whole = True

    def teardown(self) -> None:
        try:
            if self.whole:
                self._finish()
        finally:
            self.rig.clear(self.shard.stem)

    # ----

    def _in_hand(self, which: int, *, keep: bool = False) -> tuple[str, Event]:
        """An entry that a planner has; if none has one, one comes in."""
        if not self.hands:
            self.run(self._read("p0", 1))
        if not self.hands:
            self._publish([which % 3])
            self.run(self._read("p0", 1))
        if not self.hands:
            number = which % 3
            self.run(self._add(shapes.event(number)))
            self.run(self._read("p0", 1))
        return self.hands[which % len(self.hands)] if keep else self.hands.pop(which % len(self.hands))

    async def _add(self, event: Event) -> None:
        """An entry that did not come through publish."""
        await self.rig.client.execute_command("XADD", self.shard.stem + "events", "*", *flat(event))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """From here until the laws were checked again, this example may be a failed one."""
        self.whole = False
        self.furthest = max(self.furthest, self.clock.at)
        return self.rig.run(call)

    def _read_world(self) -> None:
        self.world = self.rig.run(read_world(self.rig.client, self.shard.stem))
        self.history.learn(self.world)

    def _hand(self, command: str, name: str, *words: Any) -> None:
        self.run(self.rig.client.execute_command(command, self.shard.stem + name, *words))

    async def _read(self, planner: str, count: int) -> None:
        answer = await self.rig.client.execute_command(
            "XREADGROUP", "GROUP", "planners", planner, "COUNT", count, "STREAMS", self.shard.stem + "events", ">"
        )
        streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer or []]
        for entries in streams:
            self._receive(entries[0] if isinstance(answer, dict) else entries)

    async def _claim(self, planner: str) -> None:
        answer = await self.rig.client.execute_command(
            "XAUTOCLAIM", self.shard.stem + "events", "planners", planner, 0, "0-0", "COUNT", 10
        )
        self._receive([entry for entry in answer[1] if entry[1] is not None])

    def _receive(self, entries: list[Any]) -> None:
        for entry, raw in entries:
            fields = raw if isinstance(raw, dict) else dict(zip(raw[::2], raw[1::2], strict=True))
            self.hands.append((entry.decode(), decode_event(fields)))

    def _plan(self, writing: Writing, size: int) -> None:
        state = self.world.deletions.get(writing.event.deletion, {}).get("state")
        (whole,) = rows(writing.event, writing.entry, writing.arranged)
        jobs = writing.arranged.jobs[writing.offset : writing.offset + size]
        final = writing.offset + size >= len(writing.arranged.jobs)
        row = whole._replace(
            number=writing.number, offset=writing.offset, jobs=jobs, final=final, stages=whole.stages if final else []
        )
        (answer,) = self.run(self.shard.plan([row]))
        if state is None and row.number == 0:
            self.history.counts["published"] += 1
            self.history.revived.add(writing.event.deletion)
        self.history.counts["planned"] += answer.state == "planned"
        writing.number, writing.offset = answer.number, writing.offset + len(jobs)
        if answer.state != "writing" and writing in self.writing:
            self.writing.remove(writing)
        past = state not in ("published", "held") and not (state is None and row.number == 0)
        require(
            laws.ANSWER, answer.state == "stale" if past else answer.state != "planned" or final, f"{row}: {answer}"
        )

    def _unhold(self, member: str, *, replay: bool) -> None:
        kind, _, name = member.partition(":")
        record = self.world.deletions.get(name, {}) if kind == "deletion" else {}
        event = [part for field in Event.__struct_fields__ if field in record for part in (field, record[field])]
        self.run(self.shard.unhold(member, replay=replay, who="hand", event=event))

    def _look(self, most: int, *, alone: bool = False) -> list[str]:
        answer = self.run(self.shard.look(most, alone=alone))
        for lane in answer.lanes:
            self.history.claims[lane.name] = answer.now + ms(MOMENT)
        return [lane.name for lane in answer.lanes]

    def _take(self, worker: str, wants: list[Want], lease: timedelta, version: int) -> Taken:
        answer = self.run(self.shard.take(worker, lease, wants, version))
        for want in wants:
            self.history.full[want.lane] = answer.now + ms(lease)
        for lane in answer.lanes:
            self.history.counts["taken"] += len(lane.jobs)
            for name, text in zip(lane.jobs, lane.records, strict=True):
                due = self.world.queued(lane.lane).get(name, 0.0)
                require(laws.WAITS, due <= answer.now, f"{name} is due {due} and was taken {answer.now}")
                record = _record(text)
                require(laws.ANSWER, record.v <= version, f"{name} has version {record.v}")
                self.taken.append(InHand(worker, lane.lane, Job(name, lane.fence, record)))
        return answer

    def _take_alone(self, worker: str, lease: timedelta) -> None:
        look = self.run(self.shard.look(0, alone=True))
        if not look.alone and not self.world.scores("alone"):
            # Its worker dies with it.
            self._take("w2", [Want(lane, 2, 2, shapes.CAP) for lane in shapes.ALL_LANES], lease, NEWEST)
            self.clock.jump(lease + timedelta(seconds=1))
            self.reclaim(10, 2, 4, late=False)
            look = self.run(self.shard.look(0, alone=True))
        if look.alone:
            job, lane = look.alone
            self._read_world()
            self._take(worker, [Want(lane, 1, 0, shapes.CAP, 0, job)], lease, NEWEST)

    def _is_live(self, one: InHand) -> bool:
        return self.world.holder(one.lane, one.job.id) == (one.job.fence, one.worker)

    def _settle(self, worker: str, picks: list[tuple[InHand, str]]) -> None:
        before = self.world
        live = {one.job.id for one, _ in picks if self._is_live(one)}
        items = [self._settlement(one, verdict) for one, verdict in picks]
        answer = self.run(self.shard.settle(worker, items))
        expected = [one.job.fence if self._is_live(one) else 0 for one, _ in picks]
        require(laws.ZOMBIE, answer.accepted == expected, f"{answer.accepted} where {expected} are live")
        self._read_world()
        if not live:
            require(laws.ZOMBIE, self.world == before, f"{picks}: {_difference(before, self.world)}")
        for item, (one, verdict), fence in zip(items, picks, expected, strict=True):
            if fence and one.job.id in live:
                # Of two words on the same job the first counts.
                live.remove(one.job.id)
                self.over.append(one)
                self.history.counts[item.kind] += 1
                self._check_settled(one, verdict, item)
            elif not any(expected):
                same = before.jobs.get(one.job.id) == self.world.jobs.get(one.job.id)
                require(laws.ZOMBIE, same and before.places[one.job.id] == self.world.places[one.job.id], f"{one}")

    def _settlement(self, one: InHand, verdict: str) -> Settlement:
        said = shapes.VERDICTS[verdict]()
        if said is None:
            return unreadable(one.job.id, one.job.fence, one.lane, "for a test")
        outcome = judge(one.job, said, RETRY, int(self.clock.at), lambda: 0.5)
        return settlement(one.job, one.lane, outcome, called=True)

    def _check_settled(self, one: InHand, verdict: str, item: Settlement) -> None:
        record = self.world.jobs[one.job.id]
        if verdict in shapes.EXACT and item.kind != "dead" and not one.job.record.deadline:
            late = record["due"] - self.clock.at - shapes.EXACT[verdict]
            require(laws.WAITS, abs(late) < 1000, f"{one.job.id} was told to wait and is {late} ms late")
        require(laws.ANSWER, record.get("state", item.kind) in (item.kind, "aside"), f"{verdict}: {record}")

    def _is_same(self, call: Call, answer: bytes) -> bool:
        if call.name != "take":
            return answer == call.answer
        # Of what was taken then, the worker is told what it still holds.
        then, now = msgspec.msgpack.decode(call.answer), msgspec.msgpack.decode(answer)
        worker = call.args[0]
        for lane, fence, jobs, _ in then[1]:
            held = {job for job in jobs if self.world.holder(lane, job) == (fence, worker)}
            if not any(other[0] == lane and other[1] == fence and set(other[2]) == held for other in now[1]):
                return False
        return len(then[1]) == len(now[1])

    def _under_way(self, entry: str) -> bool:
        kept = f"kept:{entry}" in self.world.raw
        after = _entry_id(entry) > _entry_id(self.world.delivered)
        return kept or (entry in self.world.entries and (entry in self.world.pending or after))

    def _catch_up(self) -> None:
        """The janitor leaves alone what was planned a moment ago; a clock that went back makes that moment long."""
        self.clock.jump(timedelta(milliseconds=max(0.0, self.furthest - self.clock.at) + 1000))

    def _janitor(self, *, version: int = NEWEST, jobs: int = 1000) -> None:
        self._catch_up()
        cursor = ""
        while cursor != "0":
            cursor, _, _ = self.run(self.shard.requeue(cursor or "0", jobs=jobs, grace=timedelta(0), version=version))
        cursor = ""
        while cursor != "0":
            cursor, _, _ = self.run(self.shard.mend(cursor or "0", grace=timedelta(0)))

    def _finish(self) -> None:
        """Everybody comes back to his senses: whatever was published gets done."""
        for lane in self.world.fields("paused"):
            self.run(self.shard.pause(lane, stop=False, who="hand"))
        for _ in range(40):
            self._read_world()
            if all(record.get("state") in ("done", "dropped") for record in self.world.deletions.values()):
                return
            self._round()
        self._read_world()
        left = {
            name: record
            for name, record in self.world.deletions.items()
            if record.get("state") not in ("done", "dropped")
        }
        require(laws.DONE, False, f"{left}; {dict(self.world.places)}; {self.world.scores('lanes')}")

    def _round(self) -> None:
        """What every loop of a worker does in the end, and a person for what was set aside."""
        self._janitor()
        self.clock.jump(LONG)
        self.run(self.shard.reclaim(deaths=1000, deaths_in_all=1000, silence=timedelta(seconds=60)))
        while self.run(self.shard.open())[1]:
            pass
        self._read_world()
        for member in self.world.scores("held"):
            self._unhold(member, replay=True)
        for job in self.world.scores("dead"):
            self.run(self.shard.retry(job, "hand"))
        self.run(self._claim("p0"))
        self.run(self._read("p0", 10))
        self._read_world()
        for entry, event in self.hands:
            self._plan(Writing(event, entry, _arranged(event, [shapes.Piece(0, 0, 0, False, False)])), size=1000)
        self.hands.clear()
        for alone in (False, True):
            self._read_world()
            if alone:
                self._take_alone("w0", timedelta(seconds=60))
            else:
                self._take("w0", [Want(lane, 9, 9, 9) for lane in self._look(9)], timedelta(seconds=60), NEWEST)
            self._read_world()
            live = [one for one in self.taken if one.worker == "w0" and self._is_live(one)]
            items = [settlement(one.job, one.lane, judge(one.job, Gone(), RETRY, 0), called=True) for one in live]
            self.run(self.shard.settle("w0", items))


def _arranged(event: Event, pieces: list[shapes.Piece]) -> Arranged:
    return arrange(event, shapes.targets(pieces), DEADLINE)


def _pick(among: Any, which: int) -> str:
    ordered = sorted(among)
    return str(ordered[which % len(ordered)])


def _entry_id(entry: str) -> tuple[int, int]:
    first, _, second = entry.partition("-")
    return int(first), int(second)


def _difference(before: World, after: World) -> dict[str, tuple[Any, Any]]:
    names = before.raw.keys() | after.raw.keys()
    return {n: (before.raw.get(n), after.raw.get(n)) for n in names if before.raw.get(n) != after.raw.get(n)}
