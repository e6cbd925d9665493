"""Participants of the engine's state machine: planners, workers, zombies, the janitor, an operator with redis-cli.

Each method is one action of a participant with a check of its result; the machine draws which of them happen."""

import json
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from service.contract import FINALLY, Event, Found, Job, JobRecord, decode_event
from service.engine.late_targets import lay_out_late_targets
from service.engine.plan_layout import PlanLayout, lay_out_plan
from service.engine.script_arguments import JobSettlement, LaneRequest, LateTargets, event_fields, ms, plan_rows
from service.engine.script_loading import Scripts
from service.engine.shard import MOMENT, Shard
from service.settings import RetrySettings
from tests.properties import drawn_plans
from tests.properties import engine_laws as laws
from tests.properties.clock import JumpingClock
from tests.properties.history import History, late_count
from tests.properties.laws import BrokenLaw, require
from tests.properties.rig import RecordedMove, Rig
from tests.properties.shard_state import ShardState, identity_of, read_shard_state
from workers.runtime.retry_policy import outcome_of, settlement, unreadable_settlement

T = TypeVar("T")
NEWEST = 2
"""The version that some of the machine's processes know already."""

LEASE = timedelta(seconds=60)
RETRY = RetrySettings(held_after=2)
DEADLINE = timedelta(seconds=45)
EVERYWHERE = [LaneRequest(lane, 2, 2, drawn_plans.CAP) for lane in drawn_plans.ALL_LANES]
_record = msgspec.json.Decoder(type=JobRecord, strict=False).decode


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A job that some worker took and may still believe to be its own."""

    worker: str
    lane: str
    job: Job
    of: int
    """How many were taken with it."""


@dataclass(slots=True)
class UnfinishedPlan:
    """A plan that is being written in chunks, and perhaps never finished."""

    event: Event
    entry: str
    arranged: PlanLayout
    number: int = 0
    offset: int = 0


@dataclass(slots=True)
class UnfinishedAppend:
    """Late targets that a worker sends in chunks, and perhaps never finishes."""

    finder: TakenJob
    late: LateTargets
    offset: int = 0
    added: int = 0


class EngineActor:
    """One shard with keys of its own. `shard_state` is the latest reading of them, `history` what they do not show."""

    def __init__(self, rig: Rig, scripts: Scripts | None, shard: int) -> None:
        self.rig, self.clock = rig, JumpingClock()
        self.furthest = self.clock.at
        self.caller = rig.caller(self.clock, scripts)
        self.shard = Shard(self.caller, rig.keys(), shard)
        self.history = History(drawn_plans.CAP, drawn_plans.WIDE)
        self.hands: list[tuple[str, Event]] = []
        self.writing: list[UnfinishedPlan] = []
        self.appending: list[UnfinishedAppend] = []
        self.taken: list[TakenJob] = []
        self.over: list[TakenJob] = []
        self.shard_state = ShardState([])
        self.run(self.shard.check_epoch("history", ""))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        self.furthest = max(self.furthest, self.clock.at)
        return self.rig.run(call)

    def look_round(self) -> None:
        self.shard_state = self.rig.run(read_shard_state(self.rig.client, self.shard.stem))
        self.history.learn(self.shard_state)

    def check_laws(self) -> None:
        self.look_round()
        for law in laws.LAWS:
            for name, what in law(self.shard_state, self.history):
                raise BrokenLaw(name, what)

    def hand(self, command: str, name: str, *words: Any) -> None:
        """A Redis command of an operator, past the engine."""
        self.run(self.rig.client.execute_command(command, self.shard.stem + name, *words))

    # ---- planners

    def publish(self, numbers: list[int]) -> None:
        events = [drawn_plans.event(number) for number in numbers]
        known = set(self.shard_state.deletions)
        for answer, event in zip(self.run(self.shard.publish(events)), events, strict=True):
            new = event.deletion not in known
            known.add(event.deletion)
            self.history.counts["published"] += new
            require(laws.ANSWER, (answer.state == "added") == new, f"{event.deletion}: {answer}")

    def read(self, planner: str, count: int) -> None:
        answer = self.run(
            self.rig.client.execute_command(
                "XREADGROUP", "GROUP", "planners", planner, "COUNT", count, "STREAMS", self.shard.stem + "events", ">"
            )
        )
        if isinstance(answer, dict):
            answer = [(stream, found[0]) for stream, found in answer.items()]
        for _, entries in answer or ():
            self._receive(entries)

    def claim(self, planner: str) -> None:
        """The planner that had it has gone silent."""
        command = ("XAUTOCLAIM", self.shard.stem + "events", "planners", planner, 0, "0-0", "COUNT", 10)
        answer = self.run(self.rig.client.execute_command(*command))
        self._receive([entry for entry in answer[1] if entry[1] is not None])

    def _receive(self, entries: list[Any]) -> None:
        for entry, raw in entries:
            fields = raw if isinstance(raw, dict) else dict(zip(raw[::2], raw[1::2], strict=True))
            self.hands.append((entry.decode(), decode_event(fields)))

    def in_hand(self, which: int, *, keep: bool = False) -> tuple[str, Event]:
        """An entry that a planner has; if none has one, one comes in, if need be past publish."""
        event = drawn_plans.event(which % 3)
        if not self.hands:
            self.read("p0", 1)
        if not self.hands:
            self.publish([which % 3])
            self.read("p0", 1)
        if not self.hands:
            self.hand("XADD", "events", "*", *event_fields(event))
            self.read("p0", 1)
        self.look_round()
        return self.hands[which % len(self.hands)] if keep else self.hands.pop(which % len(self.hands))

    def write_plan(self, writing: UnfinishedPlan, size: int) -> None:
        state = self.shard_state.deletions.get(writing.event.deletion, {}).get("state")
        (whole,) = plan_rows(writing.event, writing.entry, writing.arranged)
        jobs = writing.arranged.jobs[writing.offset : writing.offset + size]
        final = writing.offset + size >= len(writing.arranged.jobs)
        row = whole._replace(
            number=writing.number, offset=writing.offset, jobs=jobs, final=final, stages=whole.stages if final else []
        )
        (answer,) = self.run(self.shard.plan([row]))
        may_begin = state is None and row.number == 0
        if may_begin:
            self.history.counts["published"] += 1
            self.history.revived.add(writing.event.deletion)
        self.history.counts["planned"] += answer.state == "planned"
        writing.number, writing.offset = answer.number, writing.offset + len(jobs)
        if answer.state != "writing" and writing in self.writing:
            self.writing.remove(writing)
        if state in ("published", "held", "waiting") or may_begin:
            require(laws.ANSWER, answer.state != "planned" or final, f"{row}: {answer}")
        else:
            require(laws.ANSWER, answer.state == "stale", f"{row}: {answer}")

    def unhold(self, member: str, *, replay: bool) -> str:
        kind, _, name = member.partition(":")
        record = self.shard_state.deletions.get(name, {}) if kind == "deletion" else {}
        event = [part for field in Event.__struct_fields__ if field in record for part in (field, record[field])]
        return self.run(self.shard.unhold(member, replay=replay, who="hand", event=event))

    def is_under_way(self, entry: str) -> bool:
        after = _entry_id(entry) > _entry_id(self.shard_state.delivered)
        return f"kept:{entry}" in self.shard_state.raw or (
            entry in self.shard_state.entries and (entry in self.shard_state.pending or after)
        )

    # ---- workers

    def look(self, most: int, *, alone: bool = False) -> list[str]:
        answer = self.run(self.shard.due_lanes(most, alone=alone))
        for lane in answer.lanes:
            self.history.claims[lane.name] = answer.now + ms(MOMENT)
        return [lane.name for lane in answer.lanes]

    def take(self, worker: str, wants: list[LaneRequest], lease: timedelta = LEASE, version: int = NEWEST) -> None:
        self.look_round()
        answer = self.run(self.shard.take(worker, lease, wants, version))
        for want in wants:
            self.history.full[want.lane] = answer.now + ms(lease)
        for lane in answer.lanes:
            self.history.counts["taken"] += len(lane.jobs)
            for name, text in zip(lane.jobs, lane.records, strict=True):
                due = self.shard_state.queued(lane.lane).get(name, 0.0)
                require(laws.WAITS, due <= answer.now, f"{name} is due {due} and was taken {answer.now}")
                record = _record(text)
                require(laws.ANSWER, record.v <= version, f"{name} has version {record.v}")
                self.taken.append(TakenJob(worker, lane.lane, Job(name, lane.fence, record), len(lane.jobs)))
        self.look_round()

    def take_alone(self, worker: str, lease: timedelta = LEASE) -> bool:
        look = self.run(self.shard.due_lanes(0, alone=True))
        if look.alone:
            job, lane = look.alone
            self.take(worker, [LaneRequest(lane, 1, 0, drawn_plans.CAP, 0, job)], lease)
        return bool(look.alone)

    def of(self, worker: str) -> list[TakenJob]:
        """Whatever this worker ever took."""
        return [one for one in self.taken if one.worker == worker]

    def is_live(self, one: TakenJob, shard: ShardState | None = None) -> bool:
        """Now, or in another reading."""
        return (shard or self.shard_state).holder(one.lane, one.job.id) == (one.job.fence, one.worker)

    def settle(self, worker: str, picks: list[tuple[TakenJob, str]]) -> None:
        before = self.shard_state
        live = {one.job.id for one, _ in picks if one.worker == worker and self.is_live(one)}
        expected = [one.job.fence if one.worker == worker and self.is_live(one) else 0 for one, _ in picks]
        items = [self._settlement(one, verdict) for one, verdict in picks]
        answer = self.run(self.shard.settle(worker, items))
        require(laws.ZOMBIE, answer.accepted == expected, f"{answer.accepted} where {expected} are live")
        self.look_round()
        if not live:
            require(laws.ZOMBIE, self.shard_state == before, f"{picks}: {difference(before, self.shard_state)}")
        for item, (one, verdict), fence in zip(items, picks, expected, strict=True):
            if fence and one.job.id in live:
                # Of two words on the same job the first counts.
                live.remove(one.job.id)
                self.over.append(one)
                self.history.counts[item.kind] += 1
                self._check_settled(one, verdict, item)

    def _settlement(self, one: TakenJob, verdict: str) -> JobSettlement:
        said = drawn_plans.VERDICTS[verdict]()
        if said is None:
            return unreadable_settlement(one.job.id, one.job.fence, one.lane, "for a test")
        outcome = outcome_of(one.job, said, RETRY, int(self.clock.at), lambda: 0.5)
        return settlement(one.job, one.lane, outcome, called=True, of=one.of)

    def _check_settled(self, one: TakenJob, verdict: str, item: JobSettlement) -> None:
        record = self.shard_state.jobs[one.job.id]
        if verdict in drawn_plans.EXACT and item.kind != "dead" and not one.job.record.deadline:
            late = record["due"] - self.clock.at - drawn_plans.EXACT[verdict]
            require(laws.WAITS, abs(late) < 1000, f"{one.job.id} was told to wait and is {late} ms late")
        require(laws.ANSWER, record.get("state", item.kind) in (item.kind, "aside"), f"{verdict}: {record}")

    # ---- late targets

    def finder(self, worker: str, which: int) -> TakenJob | None:
        """A job of the chain `finally` that this worker has in hand; the others are brought to their end for it."""
        for _ in range(4):
            self.run(self.shard.open_stages())
            self.take(worker, EVERYWHERE)
            live = [one for one in self.of(worker) if self.is_live(one)]
            finders = [one for one in live if self.is_last_chain(one)]
            if finders:
                return finders[which % len(finders)]
            if live:
                self.settle(worker, [(one, "gone") for one in live])
            self.clock.jump(timedelta(seconds=31))
        return None

    def beside(self, finder: TakenJob) -> TakenJob | None:
        """Another job of the same deletion and of the chain `finally` that any worker has in hand."""
        live = [one for one in self.taken if one.job.deletion == finder.job.deletion and self.is_live(one)]
        return next((one for one in live if one.job.id != finder.job.id and self.is_last_chain(one)), None)

    def is_last_chain(self, one: TakenJob, shard: ShardState | None = None) -> bool:
        record = (shard or self.shard_state).deletions.get(one.job.deletion, {})
        return record.get(f"stage.{one.job.record.stage}", "").startswith(f"{FINALLY} ")

    def find(self, one: TakenJob, finds: list[drawn_plans.DrawnFind]) -> UnfinishedAppend:
        targets = drawn_plans.late_targets(finds)
        # A best-effort job may be past its deadline, and is given up then instead of being appended for.
        job = msgspec.structs.replace(one.job, record=msgspec.structs.replace(one.job.record, deadline=0))
        outcome = outcome_of(job, Found(tuple(targets), "more"), RETRY, int(self.clock.at), lambda: 0.5)
        item = settlement(one.job, one.lane, outcome, called=False, of=one.of)
        return UnfinishedAppend(one, LateTargets(item, lay_out_late_targets(targets, one.job.record.urgent, DEADLINE)))

    def append(self, append: UnfinishedAppend, times: int) -> None:
        """As many calls; with fewer than it needs, its worker dies or pauses in between."""
        self.appending = [other for other in self.appending if other is not append]
        for _ in range(times):
            self.look_round()
            before, one, bounds = self.shard_state, append.finder, self.history.bounds
            if self.is_live(one):
                # Whatever it does to its own append is right.
                self.history.appending.pop(one.job.deletion, None)
            size = max(0, min(bounds.per_call, bounds.per_look - append.added))
            answer = self.run(self.shard.append(one.worker, append.late, append.offset, size, bounds))
            self.look_round()
            self._check_answer(append, before, answer.state)
            if answer.state == "writing":
                append.offset, append.added = append.offset + size, answer.added
            elif answer.state == "stale":
                append.offset, append.added = 0, 0
            elif answer.state != "preparing":
                self._check_appended(append, before, answer.state, append.late.rows[: append.offset + size])
                return
        self.appending.append(append)

    def begin_to_append(self, append: UnfinishedAppend) -> None:
        """Something of it is written, and perhaps not all."""
        for _ in range(20):
            self.append(append, 1)
            if append.offset or append not in self.appending:
                return

    def _check_answer(self, append: UnfinishedAppend, before: ShardState, state: str) -> None:
        """Whoever may not append is told so, and changes nothing."""
        one, after = append.finder, self.shard_state
        deletion = one.job.deletion
        record, other = before.deletions.get(deletion, {}), before.unfinished_append(deletion)
        busy = other and other.job != one.job.id and before.is_under_way(other) and not append.offset
        if not self.is_live(one, before):
            reason, law = "lost", laws.ZOMBIE
        elif not self._is_current(before, one):
            reason, law = "lost", laws.ANSWER
        elif "withdrawn" in record:
            reason, law = "withdrawn", laws.WITHDRAWN
        elif not self.is_last_chain(one, before):
            reason, law = "misplaced", laws.MISPLACED
        elif busy:
            reason, law = "busy", laws.BUSY
        else:
            reason, law = "", laws.ANSWER
            require(law, state not in ("lost", "withdrawn", "misplaced", "busy"), f"{one} may append: {state}")
        if reason:
            require(law, state == reason, f"{one} is {reason} and was told {state}: {record}")
            require(law, before == after, f"{one} is {reason}: {difference(before, after)}")
        elif state != "added":
            same = before.stages(deletion) == after.stages(deletion) and self.is_live(one)
            require(laws.ANSWER, same, f"{state}: {difference(before, after)}")

    def _is_current(self, shard: ShardState, one: TakenJob) -> bool:
        record = shard.deletions.get(one.job.deletion, {})
        current = one.job.id in shard.jobs and one.job.id.startswith(f"{one.job.deletion}#{record.get('plan')}.")
        return current and record["state"] == "running"

    def _check_appended(self, append: UnfinishedAppend, before: ShardState, state: str, rows: list[Any]) -> None:
        """`rows` are those that were sent in all."""
        if state not in ("added", "known", "bounds"):
            return
        one, deletion, bounds = append.finder, append.finder.job.deletion, self.history.bounds
        then, now = set(before.all_jobs(deletion)), set(self.shard_state.all_jobs(deletion))
        known = {before.identity(job) for job in then}
        known |= {identity_of(json.loads(text)) for text in before.fields(f"abandoned:{deletion}").values()}
        records = [json.loads(row[0]) for row in rows]
        sent = {identity_of(record) for record in records}
        if state == "bounds":
            new = [record for record in records if identity_of(record) not in known]
            late = late_count(before.deletions[deletion])
            stages = late.stages + len({record["stage"] for record in new}) + 1
            beyond = late.targets + len(new) > bounds.targets or stages > bounds.stages
            require(laws.ANSWER, beyond, f"{late} and {len(new)} new ones are within {bounds}")
            return
        has = {self.shard_state.identity(job) for job in now}
        require(laws.LATE, sent - known <= has, f"{sent - known - has} of {one.job.id} was not added")
        require(laws.BOUNDS, len(now - then) <= bounds.per_look, f"{one.job.id} added {len(now - then)} in one look")
        open_ones = {job for job in then if before.identity(job) in sent and before.unfinished(job)} - {one.job.id}
        require(laws.ANSWER, state == "added" or now == then, f"{state}: {now - then}")
        if state == "added":
            self.history.counts["found"] += 1
            self.history.found[one.job.id] = self.history.found.get(one.job.id, set()) | (now - then) | open_ones
            self.over.append(one)

    def renew(self, worker: str, lease: timedelta) -> None:
        mine = self.of(worker)
        batches = sorted({(one.lane, one.job.fence) for one in mine})
        _, strangers = self.run(self.shard.renew(worker, lease, batches, patience=lease))
        kept = {(lane, fence) for (lane, fence), batch in self.shard_state.batches.items() if batch.worker == worker}
        lost = [fence for lane, fence in batches if (lane, fence) not in kept]
        require(laws.ZOMBIE, strangers == lost, f"lost were {lost}, told were {strangers}")
        for one in mine:
            fine = one.job.fence in strangers or self.is_live(one) or one in self.over
            require(laws.WHOLE, fine, f"{one} was told to be kept")

    def withdraw(self, deletion: str, most: int) -> None:
        """One step; without a name it goes on with what was begun."""
        self.look_round()
        before = self.shard_state
        record = before.deletions.get(deletion, {})
        running = record.get("state") == "running" and "withdrawn" not in record
        self.history.counts["withdrawn"] += running or record.get("state") in ("published", "held", "waiting")
        self.run(self.shard.withdraw(deletion, "for a test", most))
        self.look_round()
        ended = {job for job in before.jobs if before.unfinished(job) and not self.shard_state.unfinished(job)}
        self.history.counts["abandoned"] += len(ended)
        self.over += [one for one in self.taken if one.job.id in ended]

    def reclaim(self, silence: timedelta, deaths: int, most: int, *, by_heartbeat: bool = False) -> None:
        answer = self.run(self.shard.reclaim(deaths=deaths, silence=silence, most=most, by_heartbeat=by_heartbeat))
        self.history.counts["reclaimed"] += len(answer.given_back)
        self.history.counts["set_aside"] += len(answer.set_aside)

    # ---- the janitor

    def catch_up(self) -> None:
        """The janitor leaves alone what was planned a moment ago; a clock that went back makes that moment long."""
        self.clock.jump(timedelta(milliseconds=max(0.0, self.furthest - self.clock.at) + 1000))

    def janitor(self, *, version: int = NEWEST, jobs: int = 1000) -> None:
        self.catch_up()
        at_once = timedelta(0)
        cursor, rounds = "0", 0
        while cursor != "0" or not rounds:
            cursor, _, _ = self.run(self.shard.requeue(cursor, jobs=jobs, grace=at_once, version=version))
            rounds += 1
            require(laws.LOST, rounds < 100, f"the janitor goes round in circles: {cursor}")
        self.run(self.shard.repair(grace=at_once))
        self.look_round()
        while self.shard_state.scores("withdrawing"):
            self.withdraw("", 200)

    # ---- repeats

    def say_again(self, call: RecordedMove) -> None:
        """An answer got lost, and the call is sent once more, perhaps much later."""
        answer, before = self.run(self.caller.again(call)), self.shard_state
        require(laws.REPEAT, self._is_same(call, answer), f"{call.name}: {call.answer!r} became {answer!r}")
        self.look_round()
        require(laws.REPEAT, self.shard_state == before, f"{call.name}: {difference(before, self.shard_state)}")

    def _is_same(self, call: RecordedMove, answer: bytes) -> bool:
        if call.name != "take":
            return answer == call.answer
        # Of what was taken then, the worker is told what it still holds.
        then, now = msgspec.msgpack.decode(call.answer), msgspec.msgpack.decode(answer)
        for lane, fence, jobs, _ in then[1]:
            held = {job for job in jobs if self.shard_state.holder(lane, job) == (fence, call.args[0])}
            if not any(other[0] == lane and other[1] == fence and set(other[2]) == held for other in now[1]):
                return False
        return len(then[1]) == len(now[1])

    # ---- the end

    def finish(self) -> None:
        """Everybody comes back to his senses: whatever was published gets done."""
        for lane in self.shard_state.fields("paused"):
            self.run(self.shard.pause(lane, stop=False, who="hand"))
        for _ in range(40):
            self.look_round()
            if not self._unfinished():
                return
            self._round()
        raise BrokenLaw(
            laws.DONE, f"{self._unfinished()}; {dict(self.shard_state.places)}; {self.shard_state.scores('lanes')}"
        )

    def _unfinished(self) -> dict[str, dict[str, str]]:
        return {
            name: record
            for name, record in self.shard_state.deletions.items()
            if record.get("state") not in ("done", "dropped")
        }

    def _round(self) -> None:
        """What every loop of a worker does in the end, and a person for what was set aside."""
        self.janitor()
        # Longer than any lease, wait or recheck.
        self.clock.jump(timedelta(hours=2))
        self.run(self.shard.reclaim(deaths=1000, deaths_in_all=1000, silence=LEASE))
        while self.run(self.shard.open_stages())[1]:
            pass
        self.look_round()
        for member in (*self.shard_state.scores("held"), *self.shard_state.scores("waiting")):
            self.unhold(member, replay=True)
        for job in self.shard_state.scores("dead"):
            self.run(self.shard.retry(job, "hand"))
        self.claim("p0")
        self.read("p0", 10)
        for entry, event in self.hands:
            self.look_round()
            self.write_plan(
                UnfinishedPlan(event, entry, arranged(event, [drawn_plans.DrawnTarget(0, 0, 0, False, False)])),
                size=1000,
            )
        self.hands.clear()
        self.take("w0", [LaneRequest(lane, 9, 9, 9) for lane in self.look(9)])
        self.take_alone("w0")
        self.settle("w0", [(one, "gone") for one in self.of("w0") if self.is_live(one)])


def arranged(event: Event, pieces: list[drawn_plans.DrawnTarget]) -> PlanLayout:
    return lay_out_plan(event, drawn_plans.targets(pieces), DEADLINE)


def difference(before: ShardState, after: ShardState) -> dict[str, tuple[Any, Any]]:
    names = before.raw.keys() | after.raw.keys()
    return {n: (before.raw.get(n), after.raw.get(n)) for n in names if before.raw.get(n) != after.raw.get(n)}


def _entry_id(entry: str) -> tuple[int, int]:
    first, _, second = entry.partition("-")
    return int(first), int(second)
