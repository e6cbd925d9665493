"""State machine of the engine on one shard: random calls with crashes, zombies, repeats, manual edits and clock jumps.

The laws are checked on the keys after every step; at the end every published deletion must be done."""

from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from service.engine.late_targets import LateBounds
from service.engine.script_arguments import LaneRequest, UnplannedEvent, event_fields
from service.engine.script_loading import Scripts
from tests.properties import drawn_plans
from tests.properties import engine_laws as laws
from tests.properties.actions import Action, action, actions_of
from tests.properties.drawn_plans import INDEX, PLAN, PLANNER, WORKER, DrawnFind, DrawnTarget
from tests.properties.engine_actor import (
    EVERYWHERE,
    LEASE,
    NEWEST,
    EngineActor,
    TakenJob,
    UnfinishedPlan,
    arranged,
    difference,
)
from tests.properties.laws import require
from tests.properties.rig import Rig


class EngineActions:
    """What may happen. An action that finds nothing to act on sees to it that there is something, where it can."""

    def __init__(self, actor: EngineActor) -> None:
        self.a = actor

    # ---- planners

    @action(numbers=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def publish(self, numbers: list[int]) -> None:
        self.a.publish(numbers)

    @action(planner=PLANNER, count=st.integers(1, 3))
    def read(self, planner: str, count: int) -> None:
        self.a.read(planner, count)

    @action(planner=PLANNER)
    def claim(self, planner: str) -> None:
        self.a.claim(planner)

    @action(2, which=INDEX, pieces=PLAN, zombie=st.booleans())
    def plan(self, which: int, pieces: list[DrawnTarget], zombie: bool) -> None:
        """A zombie will come with another plan for the same entry later."""
        entry, event = self.a.in_hand(which, keep=zombie)
        self.a.write_plan(UnfinishedPlan(event, entry, arranged(event, pieces)), size=1000)

    @action(which=INDEX, pieces=PLAN)
    def begin_to_plan(self, which: int, pieces: list[DrawnTarget]) -> None:
        entry, event = self.a.in_hand(which, keep=True)
        writing = UnfinishedPlan(event, entry, arranged(event, pieces))
        self.a.writing.append(writing)
        self.a.write_plan(writing, size=2)

    @action(which=INDEX)
    def write_on(self, which: int) -> None:
        if self.a.writing:
            self.a.write_plan(self.a.writing[which % len(self.a.writing)], size=2)

    @action(2, most=st.integers(1, 4))
    def open(self, most: int) -> None:
        self.a.run(self.a.shard.open_stages(most))

    @action(which=INDEX, how=st.sampled_from(("held", "newer", "deletion", "waiting")))
    def hold(self, which: int, how: str) -> None:
        entry, event = self.a.in_hand(which)
        deletion = event.deletion if how in ("deletion", "waiting") else ""
        where = how if how in ("newer", "waiting") else "held"
        kept = UnplannedEvent(entry, where, "for a test", deletion, event_fields(event))
        self.a.history.counts["kept"] += self.a.run(self.a.shard.hold([kept]))

    # ---- workers

    @action(most=st.integers(1, 4), alone=st.booleans())
    def look(self, most: int, alone: bool) -> None:
        self.a.look(most, alone=alone)

    @action(
        2,
        worker=WORKER,
        lanes=st.lists(drawn_plans.LANE, min_size=1, max_size=3, unique=True),
        most=st.integers(0, 3),
        again=st.sampled_from((0, 0, 0, 4000)),
        lease=drawn_plans.LEASE,
        version=st.sampled_from((1, NEWEST)),
    )
    def take(self, worker: str, lanes: list[str], most: int, again: int, lease: timedelta, version: int) -> None:
        self.a.take(worker, [LaneRequest(lane, most, most, drawn_plans.CAP, again) for lane in lanes], lease, version)

    @action(worker=WORKER, lease=drawn_plans.LEASE)
    def take_alone(self, worker: str, lease: timedelta) -> None:
        if not self.a.take_alone(worker, lease) and not self.a.shard_state.scores("alone"):
            self.die_with_everything(worker)
            self.a.take_alone(worker, lease)

    @action(worker=WORKER)
    def die_with_everything(self, worker: str) -> None:
        self.a.take(worker, EVERYWHERE)
        self.a.clock.jump(LEASE + timedelta(seconds=1))
        self.a.reclaim(timedelta(seconds=10), 2, 4)

    @action(worker=WORKER)
    def die_alone(self, worker: str) -> None:
        """Whatever is suspected kills the next one, too."""
        self.a.take_alone(worker)
        self.a.clock.jump(LEASE + timedelta(seconds=1))
        self.a.reclaim(timedelta(seconds=10), 1, 4)

    @action(worker=WORKER)
    def be_slow_with_everything(self, worker: str) -> None:
        """Alive, but its leases run out."""
        self.a.take_alone(worker)
        self.a.take(worker, EVERYWHERE)
        self.a.renew(worker, timedelta(seconds=10))
        self.a.clock.jump(timedelta(seconds=11))
        self.a.reclaim(LEASE, 2, 4)

    @action(5, worker=WORKER, picks=st.lists(st.tuples(INDEX, drawn_plans.VERDICT), min_size=1, max_size=4))
    def settle(self, worker: str, picks: list[tuple[int, str]]) -> None:
        """Whatever this worker ever took, in hand or not any more; the latest is the likeliest."""
        if not any(map(self.a.is_live, self.a.of(worker))):
            self.a.take(worker, EVERYWHERE)
        mine = self.a.of(worker)
        if mine:
            self.a.settle(worker, [(mine[-1 - which % len(mine)], verdict) for which, verdict in picks])

    @action(2, worker=WORKER, which=INDEX, finds=drawn_plans.FINDS, times=st.sampled_from((1, 2, 3, 20, 20)))
    def find_late(self, worker: str, which: int, finds: list[DrawnFind], times: int) -> None:
        """A job of the last chain finds targets; its worker may die or pause between two chunks."""
        finder = self.a.finder(worker, which) or self._planned_finder(worker, which)
        if finder is not None:
            self.a.append(self.a.find(finder, finds), times)

    def _planned_finder(self, worker: str, which: int) -> TakenJob | None:
        """One of the two jobs of a new plan's last chain."""
        entry, event = self.a.in_hand(which)
        piece = DrawnTarget(chain=2, stage=0, lane=0, best_effort=False, late=False)
        self.a.write_plan(UnfinishedPlan(event, entry, arranged(event, [piece, piece._replace(lane=1)])), size=1000)
        return self.a.finder(worker, which)

    @action(bounds=drawn_plans.BOUNDS)
    def set_bounds(self, bounds: LateBounds) -> None:
        """Not while there are late targets, which were added under the former ones."""
        records = self.a.shard_state.deletions.values()
        if not any({"late", "appending"} & record.keys() for record in records):
            self.a.history.bounds = bounds

    @action(worker=WORKER, which=INDEX, finds=drawn_plans.FINDS)
    def find_outside_the_last_chain(self, worker: str, which: int, finds: list[DrawnFind]) -> None:
        self.a.take(worker, EVERYWHERE)
        live = [one for one in self.a.of(worker) if self.a.is_live(one) and not self.a.is_last_chain(one)]
        if live:
            self.a.append(self.a.find(live[which % len(live)], finds), 20)

    @action(
        worker=WORKER,
        which=INDEX,
        finds=drawn_plans.SEVERAL_CHUNKS,
        more=drawn_plans.FINDS,
        at_once=st.booleans(),
    )
    def find_side_by_side(
        self, worker: str, which: int, finds: list[DrawnFind], more: list[DrawnFind], at_once: bool
    ) -> None:
        """Two jobs of a deletion find targets, the second one perhaps before the first one has added all of its own."""
        finder = self.a.finder(worker, which)
        second = finder and self.a.beside(finder)
        if second is None:
            finder = self._planned_finder(worker, which)
            second = finder and self.a.beside(finder)
        if finder is not None and second is not None:
            first = self.a.find(finder, finds)
            self.a.begin_to_append(first)
            if at_once:
                self.a.append(self.a.find(second, more), 20)
            self.a.append(first, 20)
            self.a.append(self.a.find(second, more), 20)

    @action(which=INDEX, times=st.integers(1, 3))
    def append_on(self, which: int, times: int) -> None:
        """Whoever has the job by now."""
        if self.a.appending:
            self.a.append(self.a.appending.pop(which % len(self.a.appending)), times)

    @action(worker=WORKER, which=INDEX, finds=drawn_plans.FINDS, more=drawn_plans.FINDS)
    def die_while_appending(self, worker: str, which: int, finds: list[DrawnFind], more: list[DrawnFind]) -> None:
        """The next one that gets the job finds some of the same targets."""
        finder = self.a.finder(worker, which)
        if finder is not None:
            self.a.append(self.a.find(finder, finds), 2 + which % 3)
            self.a.clock.jump(LEASE + timedelta(seconds=1))
            self.a.reclaim(timedelta(seconds=10), 2, 4)
            self.a.take_alone(worker)
            again = [one for one in self.a.of(worker) if one.job.id == finder.job.id and self.a.is_live(one)]
            if again:
                self.a.append(self.a.find(again[-1], more), 20)

    @action(worker=WORKER, which=INDEX, finds=drawn_plans.SEVERAL_CHUNKS, most=st.sampled_from((1, 1, 4)))
    def withdraw_while_appending(self, worker: str, which: int, finds: list[DrawnFind], most: int) -> None:
        finder = self.a.finder(worker, which) or self._planned_finder(worker, which)
        if finder is not None:
            append = self.a.find(finder, finds)
            self.a.begin_to_append(append)
            self.a.withdraw(finder.job.deletion, most)
            self.a.append(append, 20)

    @action(worker=WORKER, picks=st.lists(st.tuples(INDEX, drawn_plans.VERDICT), min_size=1, max_size=4))
    def settle_what_another_took(self, worker: str, picks: list[tuple[int, str]]) -> None:
        """With the tokens that the other worker got."""
        others = [one for one in self.a.taken if one.worker != worker]
        if others:
            self.a.settle(worker, [(others[-1 - which % len(others)], verdict) for which, verdict in picks])

    @action(worker=WORKER, other=WORKER)
    def settle_again_what_was_taken_since(self, worker: str, other: str) -> None:
        """One job of a batch goes back to its lane and is taken under another token; the rest stays in hand."""
        self.a.take(worker, EVERYWHERE)
        mine = [one for one in self.a.of(worker) if self.a.is_live(one)]
        if mine:
            self.a.settle(worker, [(mine[-1], "check")])
            self.a.clock.jump(timedelta(seconds=6))
            self.a.take(other, EVERYWHERE)
            self.a.settle(worker, [(mine[-1], "gone")])

    @action(3, times=st.integers(1, 3))
    def work_on(self, times: int) -> None:
        """What a worker does all day."""
        for _ in range(times):
            self.a.run(self.a.shard.open_stages())
            self.a.take("w0", [LaneRequest(lane, 3, 3, drawn_plans.CAP) for lane in self.a.look(4)])
            self.a.take_alone("w0")
            fresh = [one for one in self.a.of("w0") if self.a.is_live(one)]
            if fresh:
                self.a.settle("w0", [(one, "gone") for one in fresh])
            self.a.clock.jump(timedelta(seconds=1))

    @action(2, worker=WORKER, lease=drawn_plans.LEASE)
    def renew(self, worker: str, lease: timedelta) -> None:
        self.a.renew(worker, lease)

    @action(3, silence=st.sampled_from((10, 60)), deaths=st.integers(1, 2), most=st.integers(1, 4), late=st.booleans())
    def reclaim(self, silence: int, deaths: int, most: int, late: bool) -> None:
        if late:
            self.a.clock.jump(timedelta(seconds=61))
        self.a.reclaim(timedelta(seconds=silence), deaths, most)

    @action(2, worker=WORKER, others=st.lists(WORKER, max_size=3), most=st.integers(1, 4))
    def end_heartbeats(self, worker: str, others: list[str], most: int) -> None:
        """It has jobs in hand and sends no more heartbeats, while others send theirs now and then."""
        self.a.take(worker, EVERYWHERE)
        self.a.renew(worker, LEASE)
        for other in others:
            self.a.clock.jump(timedelta(seconds=3))
            self.a.renew(other, LEASE)
        self.a.reclaim(LEASE, 2, most, by_heartbeat=True)

    # ---- a person

    @action(which=INDEX, replay=st.booleans())
    def unhold(self, which: int, replay: bool) -> None:
        shown = {**self.a.shard_state.scores("held"), **self.a.shard_state.scores("waiting")}
        if shown:
            self.a.unhold(pick(shown, which), replay=replay)

    @action(which=INDEX)
    def hold_for_a_while(self, which: int) -> None:
        """It is put on the stream again by itself."""
        entry, event = self.a.in_hand(which)
        where = "waiting" if which % 2 else "held"
        kept = UnplannedEvent(entry, where, "for a test", event.deletion, event_fields(event), 1000, exact=True)
        self.a.history.counts["kept"] += self.a.run(self.a.shard.hold([kept]))
        self.a.look_round()
        self.a.clock.jump(timedelta(seconds=2))
        self.a.janitor()

    @action(which=INDEX, replay=st.booleans())
    def unhold_by_name(self, which: int, replay: bool) -> None:
        """Whatever state it is in: only what waits for a person counts, or was held and is just planned again."""
        if not self.a.shard_state.deletions:
            return
        name, before = pick(self.a.shard_state.deletions, which), self.a.shard_state
        record = before.deletions[name]
        waits = name in self.a.history.held
        word = self.a.unhold(f"deletion:{name}", replay=replay)
        expected = ("replayed" if replay else "dropped") if waits else "unknown"
        require(laws.ANSWER, word == expected, f"{record}: {word}")
        self.a.look_round()
        if not waits:
            require(laws.WORD, self.a.shard_state == before, f"{record}: {difference(before, self.a.shard_state)}")
        elif not replay:
            state = self.a.shard_state.deletions[name]["state"]
            require(laws.WORD, state == "dropped", f"{name} was dropped and is {state}")

    @action(which=INDEX)
    def retry(self, which: int) -> None:
        if self.a.shard_state.jobs:
            self.a.run(self.a.shard.retry(pick(self.a.shard_state.jobs, which), "hand"))

    @action(2, which=INDEX)
    def abandon(self, which: int) -> None:
        if self.a.shard_state.jobs:
            job = pick(self.a.shard_state.jobs, which)
            word = self.a.run(self.a.shard.abandon(job, "hand"))
            self.a.history.counts["abandoned"] += word == "abandoned" and self.a.shard_state.unfinished(job)
            self.a.over += [one for one in self.a.taken if one.job.id == job]

    @action(which=INDEX, most=st.integers(1, 4))
    def withdraw(self, which: int, most: int) -> None:
        """Its finalizer was removed by others, or it is to be kept by now."""
        if self.a.shard_state.deletions:
            self.a.withdraw(pick(self.a.shard_state.deletions, which), most)

    @action(lane=st.sampled_from((*drawn_plans.ALL_LANES, "*")), stop=st.booleans())
    def pause(self, lane: str, stop: bool) -> None:
        self.a.run(self.a.shard.pause(lane, stop=stop, who="hand"))

    @action(place=st.sampled_from(("sim/a", "sim/b")))
    def wake(self, place: str) -> None:
        """Lanes had been told to come again much later."""
        lanes = [lane for lane in drawn_plans.LANES if lane.startswith(place)]
        self.a.take("w1", [LaneRequest(lane, 1, 1, drawn_plans.CAP, 60_000) for lane in lanes])
        self.a.run(self.a.shard.wake_lanes(place))
        self.a.look_round()
        waiting = [lane for lane in self.a.shard_state.fields("dry") if lane.startswith(place)]
        require(laws.SERVED, not waiting, f"{waiting} still wait for a budget that has tokens")

    @action(which=INDEX, jobs=st.integers(1, 3))
    def a_hand_takes_a_job_from_its_place(self, which: int, jobs: int) -> None:
        """The janitor finds it, however little it does at a time."""
        queued = {
            job: lane
            for lane in self.a.shard_state.lanes
            for job in self.a.shard_state.queued(lane)
            if job in self.a.shard_state.jobs
        }
        if queued:
            job = pick(queued, which)
            for side in ("", ":urgent"):
                self.a.hand("ZREM", f"lane:{queued[job]}{side}", job)
            self.a.history.counts["requeued"] += 1
            self.a.janitor(jobs=jobs)

    @action(which=INDEX, how=st.sampled_from(("XACK", "XDEL")))
    def a_hand_takes_an_entry_from_the_stream(self, which: int, how: str) -> None:
        if not self.a.shard_state.entries:
            self.a.publish([which % 3])
            self.a.look_round()
        if self.a.shard_state.entries:
            group = ["planners"] if how == "XACK" else []
            self.a.hand(how, "events", *group, pick(self.a.shard_state.entries, which))
            self.a.janitor()
            self.a.look_round()
            for deletion, record in self.a.shard_state.deletions.items():
                lost = record["state"] == "published" and not self.a.is_under_way(record["entry"])
                require(laws.EVENTS, not lost, f"{deletion} is read by no planner: {record}")

    @action()
    def a_hand_destroys_the_group(self) -> None:
        """Everything that was being planned is read once more."""
        events = self.a.shard.stem + "events"
        self.a.run(self.a.rig.client.execute_command("XGROUP", "DESTROY", events, "planners"))
        self.a.janitor()
        self.a.run(self.a.rig.client.execute_command("XGROUP", "CREATE", events, "planners", "0"))

    @action(which=INDEX)
    def a_hand_removes_the_records_of_a_plan(self, which: int) -> None:
        """It is planned anew, and workers with jobs of the old plan do no harm."""
        planned = [
            f"{name}#{record['plan']}"
            for name, record in self.a.shard_state.planned.items()
            if record["state"] != "done"
        ]
        if planned:
            plan = pick(planned, which)
            self.a.hand("DEL", f"job:{plan}")
            self.a.history.lost.add(plan)
            self.a.over += [one for one in self.a.taken if one.job.id.startswith(plan)]
            self.a.janitor()

    @action(which=INDEX)
    def a_hand_forgets_that_a_stage_opens(self, which: int) -> None:
        opening = self.a.shard_state.scores("opening")
        if opening:
            stage = pick(opening, which)
            self.a.hand("ZREM", "opening", stage)
            self.a.janitor()
            self.a.look_round()
            require(laws.LOST, stage in self.a.shard_state.scores("opening"), f"{stage} is not opened")

    @action(which=INDEX)
    def a_newer_version_writes_a_job(self, which: int) -> None:
        queued = {job for lane in self.a.shard_state.lanes for job in self.a.shard_state.queued(lane)} & set(
            self.a.shard_state.jobs
        )
        if queued or self.a.shard_state.jobs:
            job = pick(queued or self.a.shard_state.jobs, which)
            plan, _, number = job.rpartition(".")
            text = msgspec.json.encode(self.a.shard_state.jobs[job] | {"v": NEWEST})
            self.a.hand("HSET", f"job:{plan}", number, text)

    # ---- what goes on by itself

    @action(3, seconds=st.sampled_from(drawn_plans.SECONDS))
    def jump(self, seconds: int) -> None:
        self.a.clock.jump(timedelta(seconds=seconds))

    @action(version=st.sampled_from((1, NEWEST)), jobs=st.integers(1, 3))
    def janitor(self, version: int, jobs: int) -> None:
        self.a.janitor(version=version, jobs=jobs)

    @action(most=st.integers(1, 4), after=st.sampled_from((0, 900, 86_400)))
    def expire(self, most: int, after: int) -> None:
        keep = timedelta(seconds=after)
        self.a.run(self.a.shard.expire(finished=keep, audit=keep, audit_entries=100, lanes=keep, most=most))
        self.a.look_round()
        self.a.history.forget({name for name in self.a.history.finished if name not in self.a.shard_state.deletions})

    @action()
    def survey(self) -> None:
        self.a.run(self.a.shard.refresh_stats())
        self.a.look_round()
        shard_state = self.a.shard_state
        stats = shard_state.fields("stats")
        for name, real in (
            ("queued", sum(len(shard_state.queued(lane)) for lane in shard_state.lanes)),
            ("leased", sum(len(leases) for leases in shard_state.leases.values())),
            ("events", len(shard_state.entries)),
            ("aside", len(shard_state.scores("dead"))),
            *((name, len(shard_state.scores(name))) for name in ("open", "held", "waiting", "alone", "newer")),
        ):
            require(laws.COUNTS, int(stats[name]) == real, f"stats {name}: {stats[name]}, really {real}")

    @action(2, back=st.integers(0, 12))
    def say_it_again(self, back: int) -> None:
        if back < len(self.a.caller.calls):
            self.a.say_again(self.a.caller.calls[-1 - back])


class EngineMachine(RuleBasedStateMachine):
    """`rig`, `scripts` and the number of the shard are set by whoever runs it."""

    kinds = EngineActions
    rig: ClassVar[Rig]
    scripts: ClassVar[Scripts | None] = None
    shard: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.actor = EngineActor(self.rig, self.scripts, self.shard)
        self.actions = EngineActions(self.actor)
        self.sound = True

    @initialize(plans=st.lists(PLAN, min_size=1, max_size=3))
    def begin(self, plans: list[list[DrawnTarget]]) -> None:
        for number, pieces in enumerate(plans):
            self.actor.publish([number])
            self.actor.look_round()
            entry, event = self.actor.in_hand(0)
            self.actor.write_plan(UnfinishedPlan(event, entry, arranged(event, pieces)), size=1000)
            self.actor.look_round()

    @rule(action=actions_of(EngineActions))
    def step(self, action: Action) -> None:
        self.sound = False
        action.do(self.actions)

    @invariant()
    def laws_hold(self) -> None:
        self.sound = False
        self.actor.check_laws()
        self.sound = True

    def teardown(self) -> None:
        try:
            if self.sound:
                self.actor.finish()
        finally:
            self.rig.clear(self.actor.shard.stem)


def pick(among: Iterable[str], which: int) -> str:
    """The same one however the server orders them."""
    ordered = sorted(among)
    return ordered[which % len(ordered)]
