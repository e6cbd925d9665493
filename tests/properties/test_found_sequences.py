"""Sequences of calls in which the state machine once found a broken law, shrunk as far as possible.

They are tried in every run, whatever Hypothesis draws."""

from datetime import timedelta

import pytest

from tests.properties.actions import Action
from tests.properties.drawn_plans import DrawnTarget
from tests.properties.engine_actor import EngineActor, UnfinishedPlan, arranged
from tests.properties.engine_machine import EngineActions
from tests.properties.rig import Rig
from tests.redis_servers import TestServer

SECOND = timedelta(seconds=1)
ONE = DrawnTarget(0, 0, 0, False, False)
OPTIONAL = ONE._replace(best_effort=True)
ELSEWHERE = ONE._replace(lane=1)
LATER = ONE._replace(stage=1)


def do(name: str, **words: object) -> Action:
    return Action(name, words)


FOUND: dict[str, tuple[list[list[DrawnTarget]], list[Action]]] = {
    "a batch is given back as a whole, so that its worker learns of it": (
        [[ONE, ONE, ELSEWHERE]],
        [
            do("settle", worker="w0", picks=[(0, "blocked")]),
            do("reclaim", silence=10, deaths=1, most=1, late=True),
            do("renew", worker="w0", lease=10 * SECOND),
        ],
    ),
    "a suspect that was only slow is still tried alone": (
        [[]],
        [do("take_alone", worker="w0", lease=10 * SECOND), do("be_slow_with_everything", worker="w0")],
    ),
    "a job that was held and then given up is held no more": (
        [[OPTIONAL]],
        [
            do("settle", worker="w0", picks=[(0, "refused")]),
            do("jump", seconds=1000),
            do("die_with_everything", worker="w1"),
            do("die_alone", worker="w2"),
        ],
    ),
    "what was dropped half planned leaves no records": (
        [[]],
        [
            do("hold", which=1, how="held"),
            do("unhold", which=0, replay=True),
            do("begin_to_plan", which=0, pieces=[ONE, ONE]),
            do("hold", which=0, how="held"),
            do("unhold", which=0, replay=False),
            do("expire", most=1, after=0),
            do("write_on", which=0),
        ],
    ),
    "a leftover entry does not hold what was dropped": (
        [[]],
        [
            do("hold", which=14, how="held"),
            do("unhold", which=0, replay=False),
            do("hold", which=26, how="deletion"),
        ],
    ),
    "to drop a leftover does not drop what runs": (
        [[]],
        [
            do("hold", which=1, how="held"),
            do("begin_to_plan", which=1, pieces=[ONE]),
            do("unhold", which=0, replay=False),
        ],
    ),
    "a stage of a plan that is no more does not open in the next": (
        [[ONE, ONE, ELSEWHERE, LATER]],
        [
            do("die_with_everything", worker="w0"),
            do("work_on", times=3),
            do("a_hand_removes_the_records_of_a_plan", which=0),
            do("a_hand_forgets_that_a_stage_opens", which=0),
        ],
    ),
    "who works for a plan that is no more counts for nothing in the next": (
        [[ONE, ONE]],
        [
            do("take", worker="w0", lanes=["sim/a/one"], most=2, again=0, lease=60 * SECOND, version=1),
            do("a_hand_removes_the_records_of_a_plan", which=0),
            do("plan", which=0, pieces=[ONE, ONE], zombie=False),
            do("settle", worker="w0", picks=[(0, "gone"), (1, "gone")]),
        ],
    ),
    "the janitor comes to every deletion, however little it does at a time": (
        [[], []],
        [do("a_hand_takes_a_job_from_its_place", which=1, jobs=1)],
    ),
    "a plan after the deletion expired has another number than one whose entries are still in a lane": (
        [[ONE]],
        [
            do("take_alone", worker="w0", lease=10 * SECOND),
            do("settle", worker="w0", picks=[(0, "blocked")]),
            do("a_hand_removes_the_records_of_a_plan", which=0),
            do("begin_to_plan", which=0, pieces=[]),
            do("settle", worker="w0", picks=[(0, "gone")]),
            do("expire", most=1, after=0),
            do("plan", which=0, pieces=[], zombie=False),
        ],
    ),
    "without a group the janitor goes on": (
        [[]],
        [do("publish", numbers=[1]), do("a_hand_destroys_the_group"), do("read", planner="p1", count=3)],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_once_it_was_not_so_that(name: str, embedded_server: TestServer) -> None:
    plans, actions = FOUND[name]
    rig = Rig(embedded_server.settings(shards=1))
    try:
        actor = EngineActor(rig, None, 0)
        for number, pieces in enumerate(plans):
            actor.publish([number])
            entry, event = actor.in_hand(0)
            actor.write_plan(UnfinishedPlan(event, entry, arranged(event, pieces)), size=1000)
            actor.check_laws()
        for action in actions:
            action.do(EngineActions(actor))
            actor.check_laws()
        actor.finish()
        rig.clear(actor.shard.stem)
    finally:
        rig.close()
