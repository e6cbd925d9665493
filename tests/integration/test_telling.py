"""What the owners of objects are told in their own cluster: Events and a condition, seldom enough, and never at the
engine's expense."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import FINALLY, Gone
from service.contract.names import FINALIZER
from service.engine.keys import deletion_of
from service.engine.views.progress import Ending, Obstacle, What, ending
from service.engine.withdrawal import withdraw
from service.settings import FeedbackSettings, GuardSettings
from standins.provider.world import Resource, Seed
from tests.engine.outside import LANE as HAND_LANE
from tests.engine.outside import event, thing
from tests.integration.staged import ACCOUNT, SOURCE, Stage
from tests.integration.test_surface import surfaced
from tests.integration.told import OTHER, condition, events, stage, until_condition, until_event
from workers.handlers.notes import Note, Reason
from workers.handlers.objects import about_event
from workers.handlers.places import Places
from workers.judging.planner import counted, listed
from workers.judging.records import Records
from workers.reporting.teller import Teller
from workers.reporting.words import done, in_the_way

__all__ = ["stage"]


async def test_the_start_and_the_end_are_told_with_counts(stage: Stage) -> None:
    one = await stage.going("w", 3, finalizers=[FINALIZER, OTHER])
    await stage.work()
    await stage.until_done(one)
    assert await until_event(stage, one.uid, "CleanupStarted") == ("Normal", "removing 3 resources (3 simulated)")
    assert await until_event(stage, one.uid, "CleanupDone") == ("Normal", "3 of 3 resources removed")
    told = await until_condition(stage, "w", "CleanupDone")
    assert (told["status"], told["message"]) == ("True", "3 of 3 resources removed")


async def test_what_the_guard_holds_is_told_to_the_object_and_shown_as_a_metric(stage: Stage) -> None:
    stage.source(guard=GuardSettings(most=1))
    first, second = await stage.going("w"), await stage.going("x")
    async with surfaced(stage.settings.redis) as looker:
        await stage.work()

        async def held() -> list[str]:
            return [one.uid for one in (first, second) if await stage.state(one) == "held"]

        (uid,) = await stage.until("one of them is held", held)
        words = f"guard: more than 1 deletions of source {SOURCE} within 1h"
        kind, note = await until_event(stage, uid, "CleanupHeld")
        assert (kind, note.startswith(words)) == ("Warning", True)
        assert f"`knell guard release {SOURCE}`" in note
        name = "w" if uid == first.uid else "x"
        await until_condition(stage, name, "CleanupHeld", words)

        async def shown() -> bool:
            numbers = await looker.numbers()
            return (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", SOURCE]) == (1, 1)

        await stage.until("the metrics show it", shown)


async def test_what_blocks_is_told_by_name_and_until_when(stage: Stage) -> None:
    stage.change("retry", blocked_base=timedelta(seconds=2), blocked_cap=timedelta(seconds=2))
    stage.make("w", 1)
    stage.provider.world.add(
        Seed(resources=(Resource(account=ACCOUNT, id="vm", owner="x"),
                        Resource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",))))
    )  # fmt: skip
    await stage.publish(one := stage.event(stage.delete("w")))
    await stage.work()
    kind, note = await until_event(stage, one.uid, "CleanupWaiting")
    assert kind == "Normal"
    assert note.startswith("waiting for 1 resource: w-0: blocked: vm, tried again at 2")
    told = await until_condition(stage, "w", "CleanupWaiting", "blocked: vm")
    assert told["status"] == "False"


async def test_what_is_held_is_told_with_its_reason(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await stage.work()
    kind, note = await until_event(stage, one.uid, "CleanupHeld")
    assert kind == "Warning"
    assert "annotation knell.dev/deletion-policy of the object has the value 'remove'; allowed: delete, retain" in note
    await until_condition(stage, "w", "CleanupHeld", "allowed: delete, retain")


async def test_a_job_that_its_owner_forbids_is_told(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w", 2)
    await stage.work()
    await stage.until_state(one, "running")
    stage.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await stage.free_lanes()
    _, note = await until_event(stage, one.uid, "CleanupHeld")
    assert "knell.dev/prevent-delete" in note


async def test_withdrawn_consent_is_told(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w", 2, finalizers=[FINALIZER, OTHER])
    await stage.work()
    await stage.until_state(one, "running")
    stage.unmark("w", keep=(OTHER,))
    await stage.free_lanes()
    kind, note = await until_event(stage, one.uid, "ConsentWithdrawn")
    assert kind == "Warning"
    assert "does not have our finalizer" in note
    _, note = await until_event(stage, one.uid, "CleanupDone")
    assert note.startswith("0 of 2 resources removed, 2 left by decision, withdrawn:")


async def test_retained_resources_are_told(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/deletion-policy": "retain"})
    await stage.work()
    _, note = await until_event(stage, one.uid, "ResourcesRetained")
    assert "says 'retain'" in note


async def test_an_event_for_an_object_that_is_not_going_is_told_to_nobody(stage: Stage) -> None:
    found = stage.make("w")
    await stage.publish(one := stage.event(found))
    running = await stage.work()
    await stage.until_held(one, "lives")
    await running.stop()
    assert events(stage, one.uid) == []
    assert condition(stage, "w") is None


# ---- seldom, and never in the way


async def test_an_event_is_told_once_over_all_workers_and_planning_rounds(stage: Stage) -> None:
    one = await stage.going("w", annotations={"knell.dev/prevent-delete": "true"})
    workers = [await stage.work(), await stage.work()]

    async def held_often() -> bool:
        return int((await stage.deletion(one)).get("holds", 0)) >= 3

    await stage.until("it was held three times", held_often)
    for running in workers:
        await running.stop()
    assert [reason for _, reason, _ in events(stage, one.uid)] == ["CleanupHeld"]


async def test_nothing_is_told_where_the_settings_say_so(stage: Stage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, feedback=FeedbackSettings(events=False, conditions=False))
    one = await stage.going("w", finalizers=[FINALIZER, OTHER])
    running = await stage.work()
    await stage.until_done(one)
    await running.stop()
    assert events(stage, one.uid) == []
    assert condition(stage, "w") is None


async def test_a_refused_event_or_condition_fails_nothing(stage: Stage) -> None:
    stage.front.refuse(403, lambda method, path: path.endswith(("/events", "/status")))
    one = await stage.going("w", 2)
    running = await stage.work()
    await stage.until_done(one)
    await running.stop()
    assert stage.deletes == 2
    assert {method for method, _ in stage.front.refused} >= {"POST"}


async def test_an_event_in_a_terminating_namespace_fails_nothing(stage: Stage) -> None:
    stage.make("w", 2)
    stage.api.kube.delete(f"/api/v1/namespaces/{stage.namespace}")

    async def going() -> Any:
        found = stage.read("w")
        return found if "deletionTimestamp" in found["metadata"] else None

    found = await stage.until("the namespace takes it along", going, timedelta(seconds=30))
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_done(one)
    assert stage.deletes == 2


async def test_what_can_not_wait_is_dropped_and_counted(stage: Stage) -> None:
    records = Records(stage.installation)

    async def unknown() -> dict[str, str]:
        return {}

    places = Places(stage.settings, {"local": stage.cluster}, unknown)
    teller = Teller(stage.installation, FeedbackSettings(), places, records, most=2)
    about = about_event(stage.event({"metadata": {"uid": "u", "name": "n"}}))
    for _ in range(5):
        teller.tell(Note(about, "CleanupHeld", "why"))
    for number in range(5):
        teller.heard(f"c/things/u{number}/1#1.0")
    assert teller.dropped == 6
    assert deletion_of("c/things/u0/1#1.0") == "c/things/u0/1"


async def test_of_one_object_things_are_told_in_their_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:

    async def nothing_remembered() -> dict[str, str]:
        return {}

    places = Places(stage.settings, {"local": stage.cluster}, nothing_remembered)
    teller = Teller(stage.installation, FeedbackSettings(), places, Records(stage.installation))
    told: list[tuple[str, str]] = []

    async def tell(note: Note) -> None:
        # What comes first takes longest, as when it has to read the object and another wrote it meanwhile.
        await asyncio.sleep(0.2 if note.reason == "CleanupStarted" else 0)
        told.append((note.about.uid, note.reason))

    monkeypatch.setattr(teller, "_tell", tell)
    for uid in ("a", "b"):
        about = about_event(stage.event({"metadata": {"uid": uid, "name": "n"}}))
        reasons: tuple[Reason, ...] = ("CleanupStarted", "CleanupDone")
        for reason in reasons:
            teller.tell(Note(about, reason, ""))
    running = asyncio.create_task(teller.run())
    await teller.drained()
    running.cancel()
    for uid in ("a", "b"):
        assert [reason for one, reason in told if one == uid] == ["CleanupStarted", "CleanupDone"]


# ---- counts


async def test_the_last_look_and_what_was_never_there_are_no_resources(stage: Stage) -> None:
    one, named = event("u1"), [thing("a"), thing("b"), thing("c")]
    assert counted([*named, thing("look", chain=FINALLY)]) == "removing 3 resources (3 thing)"
    await stage.lay(one, [*named, thing("look", chain=FINALLY)])
    for verdict in (Gone(), Gone(), Gone(absent=True), Gone("a fresh list is empty")):
        assert await stage.settle(await stage.take(one, "hand", HAND_LANE, 1), "hand", verdict) == [True]
        while (await stage.shard(one).open())[1]:
            pass
    assert done(await ending(stage.installation, one.deletion)) == "2 of 2 resources removed"


async def test_of_a_withdrawn_deletion_as_many_are_left_as_there_were(stage: Stage) -> None:
    one = event("u1")
    await stage.lay(one, [thing("a"), thing("b"), thing("look", chain=FINALLY)])
    assert await withdraw(stage.installation, one.deletion, "retain: so")
    words = done(await ending(stage.installation, one.deletion))
    assert words == "0 of 2 resources removed, 2 left by decision, withdrawn: retain: so"


def test_what_a_plan_only_names_is_looked_for_and_not_counted() -> None:
    unseen = [msgspec.structs.replace(thing(name), seen=False) for name in ("a", "b")]
    assert counted(unseen) == "looking for what is left of it (2 thing)"
    assert counted([thing("c"), *unseen]) == "removing 1 resource (1 thing); looking for what is left of it (2 thing)"
    assert listed(unseen).startswith("what is there of 2 resources: thing a")


def test_where_nothing_was_there_nothing_was_left_to_be_removed() -> None:
    nothing = Ending(resources=0, removed=0, abandoned=0, given_up=0, absent=3, policy="", withdrawn="")
    assert done(nothing) == "nothing was left to be removed"


# ---- words


def obstacle(target: str, why: str, after: int = 0, *, held: bool = False, what: What = "resource") -> Obstacle:
    verdict = "refused" if held else "blocked"
    return Obstacle(what=what, target=target, held=held, verdict=verdict, why=why, due=1_700_000_000_000 + after)


def test_what_needs_a_person_is_said_first_and_those_alike_stand_together() -> None:
    found = [obstacle("eni-0", "vm-0"), *(obstacle(f"sg-{n}", "protected", n, held=True) for n in range(2))]
    assert in_the_way(found) == (
        "2 resources need a person: sg-0, sg-1: protected, tried again at 2023-11-14 22:13:20 UTC; "
        "waiting for 1 resource: eni-0: blocked: vm-0, tried again at 2023-11-14 22:13:20 UTC"
    )
    assert in_the_way(found, times=False) == (
        "2 resources need a person: sg-0, sg-1: protected; waiting for 1 resource: eni-0: blocked: vm-0"
    )


def test_the_last_look_and_the_release_are_no_resources() -> None:
    found = [obstacle("prod", "sg-1 is there again", what="look"), obstacle("eni-0", "vm-0")]
    assert in_the_way(found, times=False) == (
        "waiting for 1 resource and the last look at what is left: blocked: sg-1 is there again; eni-0: blocked: vm-0"
    )
    released = [obstacle("c/things/u/1", "paused by policy", held=True, what="release")]
    assert in_the_way(released, times=False) == "the release of the object needs a person: paused by policy"


def test_a_sentence_names_the_first_few_and_counts_the_rest() -> None:
    waiting = [obstacle(f"eni-{number}", f"vm-{number}", number) for number in range(12)]
    words = in_the_way(waiting)
    assert words.startswith(
        "waiting for 12 resources: eni-0: blocked: vm-0, tried again at 2023-11-14 22:13:20 UTC; eni-1"
    )
    assert words.endswith("; and 4 more")
    assert len(words) < 1024
