"""Status reports in the objects' own cluster: Events and a condition, rate limited, and never delaying a job."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract import FINALLY, Gone
from service.contract.names import FINALIZER
from service.engine.keys import deletion_of
from service.engine.views.progress import Obstacle, RemovalSummary, What, removal_summary
from service.engine.withdrawal import withdraw
from service.settings import FeedbackSettings, GuardSettings
from tests.engine.scripted_provider import LANE as HAND_LANE
from tests.engine.scripted_provider import event, thing
from tests.integration.events_and_conditions import OTHER, condition, events, judged, until_condition, until_event
from tests.integration.judged_source import ACCOUNT, SOURCE, JudgedSource
from tests.integration.test_web import web_client
from tests.simulated.provider_state import Seed, SeededResource
from workers.handlers.collector import ref_of_event
from workers.handlers.source_clusters import SourceClusters
from workers.handlers.status_reports import Reason, StatusReport
from workers.judging.deletion_records import DeletionRecords
from workers.judging.planner import counted, listed
from workers.reporting.messages import done_message, obstacles_message
from workers.reporting.status_reporter import StatusReporter

__all__ = ["judged"]


async def test_the_start_and_the_end_are_reported_with_counts(judged: JudgedSource) -> None:
    one = await judged.going("w", 3, finalizers=[FINALIZER, OTHER])
    await judged.work()
    await judged.until_done(one)
    assert await until_event(judged, one.uid, "CleanupStarted") == ("Normal", "removing 3 resources (3 simulated)")
    assert await until_event(judged, one.uid, "CleanupDone") == ("Normal", "3 of 3 resources removed")
    told = await until_condition(judged, "w", "CleanupDone")
    assert (told["status"], told["message"]) == ("True", "3 of 3 resources removed")


async def test_what_the_guard_holds_is_reported_on_the_object_and_as_a_metric(judged: JudgedSource) -> None:
    judged.source(guard=GuardSettings(most=1))
    first, second = await judged.going("w"), await judged.going("x")
    async with web_client(judged.settings.redis) as client:
        await judged.work()

        async def held() -> list[str]:
            return [one.uid for one in (first, second) if await judged.state(one) == "held"]

        (uid,) = await judged.until("one of them is held", held)
        words = f"guard: more than 1 deletions of source {SOURCE} within 1h"
        kind, note = await until_event(judged, uid, "CleanupHeld")
        assert (kind, note.startswith(words)) == ("Warning", True)
        assert f"`knell guard release {SOURCE}`" in note
        name = "w" if uid == first.uid else "x"
        await until_condition(judged, name, "CleanupHeld", words)

        async def shown() -> bool:
            numbers = await client.numbers()
            return (numbers["knell_guard_tripped", "0"], numbers["knell_guard_held", SOURCE]) == (1, 1)

        await judged.until("the metrics show it", shown)


async def test_what_blocks_is_reported_with_name_and_time(judged: JudgedSource) -> None:
    judged.change("retry", blocked_base=timedelta(seconds=2), blocked_cap=timedelta(seconds=2))
    judged.make("w", 1)
    judged.provider.state.add(
        Seed(resources=(SeededResource(account=ACCOUNT, id="vm", owner="x"),
                        SeededResource(account=ACCOUNT, id="w-0", owner="tag", blocked_by=("vm",))))
    )  # fmt: skip
    await judged.publish(one := judged.event(judged.delete("w")))
    await judged.work()
    kind, note = await until_event(judged, one.uid, "CleanupWaiting")
    assert kind == "Normal"
    assert note.startswith("waiting for 1 resource: w-0: blocked: vm, tried again at 2")
    told = await until_condition(judged, "w", "CleanupWaiting", "blocked: vm")
    assert told["status"] == "False"


async def test_what_is_held_is_reported_with_its_reason(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "remove"})
    await judged.work()
    kind, note = await until_event(judged, one.uid, "CleanupHeld")
    assert kind == "Warning"
    assert "annotation knell.dev/deletion-policy of the object has the value 'remove'; allowed: delete, retain" in note
    await until_condition(judged, "w", "CleanupHeld", "allowed: delete, retain")


async def test_a_job_that_a_mark_forbids_is_reported(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w", 2)
    await judged.work()
    await judged.until_state(one, "running")
    judged.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await judged.free_lanes()
    _, note = await until_event(judged, one.uid, "CleanupHeld")
    assert "knell.dev/prevent-delete" in note


async def test_withdrawn_consent_is_reported(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w", 2, finalizers=[FINALIZER, OTHER])
    await judged.work()
    await judged.until_state(one, "running")
    judged.unmark("w", keep=(OTHER,))
    await judged.free_lanes()
    kind, note = await until_event(judged, one.uid, "ConsentWithdrawn")
    assert kind == "Warning"
    assert "does not have our finalizer" in note
    _, note = await until_event(judged, one.uid, "CleanupDone")
    assert note.startswith("0 of 2 resources removed, 2 left by decision, withdrawn:")


async def test_retained_resources_are_reported(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/deletion-policy": "retain"})
    await judged.work()
    _, note = await until_event(judged, one.uid, "ResourcesRetained")
    assert "says 'retain'" in note


async def test_an_event_for_an_object_that_is_not_being_deleted_is_not_reported(judged: JudgedSource) -> None:
    found = judged.make("w")
    await judged.publish(one := judged.event(found))
    running = await judged.work()
    await judged.until_held(one, "lives")
    await running.stop()
    assert events(judged, one.uid) == []
    assert condition(judged, "w") is None


# ---- seldom, and never in the way


async def test_an_event_is_reported_once_over_all_workers_and_planning_rounds(judged: JudgedSource) -> None:
    one = await judged.going("w", annotations={"knell.dev/prevent-delete": "true"})
    workers = [await judged.work(), await judged.work()]

    async def held_often() -> bool:
        return int((await judged.deletion(one)).get("holds", 0)) >= 3

    await judged.until("it was held three times", held_often)
    for running in workers:
        await running.stop()
    assert [reason for _, reason, _ in events(judged, one.uid)] == ["CleanupHeld"]


async def test_nothing_is_reported_where_the_settings_say_so(judged: JudgedSource) -> None:
    judged.settings = msgspec.structs.replace(
        judged.settings, feedback=FeedbackSettings(events=False, conditions=False)
    )
    one = await judged.going("w", finalizers=[FINALIZER, OTHER])
    running = await judged.work()
    await judged.until_done(one)
    await running.stop()
    assert events(judged, one.uid) == []
    assert condition(judged, "w") is None


async def test_a_refused_event_or_condition_fails_nothing(judged: JudgedSource) -> None:
    judged.proxy.refuse(403, lambda method, path: path.endswith(("/events", "/status")))
    one = await judged.going("w", 2)
    running = await judged.work()
    await judged.until_done(one)
    await running.stop()
    assert judged.deletes == 2
    assert {method for method, _ in judged.proxy.refused} >= {"POST"}


async def test_an_event_in_a_terminating_namespace_fails_nothing(judged: JudgedSource) -> None:
    judged.make("w", 2)
    judged.api.kube.delete(f"/api/v1/namespaces/{judged.namespace}")

    async def going() -> Any:
        found = judged.read("w")
        return found if "deletionTimestamp" in found["metadata"] else None

    found = await judged.until("the namespace takes it along", going, timedelta(seconds=30))
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_done(one)
    assert judged.deletes == 2


async def test_what_can_not_wait_is_dropped_and_counted(judged: JudgedSource) -> None:
    records = DeletionRecords(judged.installation)

    async def unknown() -> dict[str, str]:
        return {}

    places = SourceClusters(judged.settings, {"local": judged.cluster}, unknown)
    reporter = StatusReporter(judged.installation, FeedbackSettings(), places, records, most=2)
    ref = ref_of_event(judged.event({"metadata": {"uid": "u", "name": "n"}}))
    for _ in range(5):
        reporter.report(StatusReport(ref, "CleanupHeld", "why"))
    for number in range(5):
        reporter.status_changed(f"c/things/u{number}/1#1.0")
    assert reporter.dropped == 6
    assert deletion_of("c/things/u0/1#1.0") == "c/things/u0/1"


async def test_reports_of_one_object_are_written_in_order(
    judged: JudgedSource, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def nothing_remembered() -> dict[str, str]:
        return {}

    places = SourceClusters(judged.settings, {"local": judged.cluster}, nothing_remembered)
    reporter = StatusReporter(judged.installation, FeedbackSettings(), places, DeletionRecords(judged.installation))
    told: list[tuple[str, str]] = []

    async def write(report: StatusReport) -> None:
        # What comes first takes longest, as when it has to read the object and another wrote it meanwhile.
        await asyncio.sleep(0.2 if report.reason == "CleanupStarted" else 0)
        told.append((report.ref.uid, report.reason))

    monkeypatch.setattr(reporter, "_write", write)
    for uid in ("a", "b"):
        ref = ref_of_event(judged.event({"metadata": {"uid": uid, "name": "n"}}))
        reasons: tuple[Reason, ...] = ("CleanupStarted", "CleanupDone")
        for reason in reasons:
            reporter.report(StatusReport(ref, reason, ""))
    running = asyncio.create_task(reporter.run())
    await reporter.drained()
    running.cancel()
    for uid in ("a", "b"):
        assert [reason for one, reason in told if one == uid] == ["CleanupStarted", "CleanupDone"]


# ---- counts


async def test_the_last_look_and_what_was_never_there_are_no_resources(judged: JudgedSource) -> None:
    one, named = event("u1"), [thing("a"), thing("b"), thing("c")]
    assert counted([*named, thing("look", chain=FINALLY)]) == "removing 3 resources (3 thing)"
    await judged.lay(one, [*named, thing("look", chain=FINALLY)])
    for verdict in (Gone(), Gone(), Gone(absent=True), Gone("a fresh list is empty")):
        assert await judged.settle(await judged.take(one, "hand", HAND_LANE, 1), "hand", verdict) == [True]
        while (await judged.shard(one).open_stages())[1]:
            pass
    assert done_message(await removal_summary(judged.installation, one.deletion)) == "2 of 2 resources removed"


async def test_of_a_withdrawn_deletion_as_many_are_left_as_there_were(judged: JudgedSource) -> None:
    one = event("u1")
    await judged.lay(one, [thing("a"), thing("b"), thing("look", chain=FINALLY)])
    assert await withdraw(judged.installation, one.deletion, "retain: so")
    words = done_message(await removal_summary(judged.installation, one.deletion))
    assert words == "0 of 2 resources removed, 2 left by decision, withdrawn: retain: so"


def test_what_a_plan_only_names_is_looked_for_and_not_counted() -> None:
    unseen = [msgspec.structs.replace(thing(name), seen=False) for name in ("a", "b")]
    assert counted(unseen) == "looking for what is left of it (2 thing)"
    assert counted([thing("c"), *unseen]) == "removing 1 resource (1 thing); looking for what is left of it (2 thing)"
    assert listed(unseen).startswith("what is there of 2 resources: thing a")


def test_where_nothing_was_there_nothing_was_left_to_be_removed() -> None:
    nothing = RemovalSummary(resources=0, removed=0, abandoned=0, given_up=0, absent=3, policy="", withdrawn="")
    assert done_message(nothing) == "nothing was left to be removed"


# ---- words


def obstacle(target: str, why: str, after: int = 0, *, held: bool = False, what: What = "resource") -> Obstacle:
    verdict = "refused" if held else "blocked"
    return Obstacle(what=what, target=target, held=held, verdict=verdict, why=why, due=1_700_000_000_000 + after)


def test_what_needs_a_person_is_said_first_and_those_alike_stand_together() -> None:
    found = [obstacle("eni-0", "vm-0"), *(obstacle(f"sg-{n}", "protected", n, held=True) for n in range(2))]
    assert obstacles_message(found) == (
        "2 resources need a person: sg-0, sg-1: protected, tried again at 2023-11-14 22:13:20 UTC; "
        "waiting for 1 resource: eni-0: blocked: vm-0, tried again at 2023-11-14 22:13:20 UTC"
    )
    assert obstacles_message(found, times=False) == (
        "2 resources need a person: sg-0, sg-1: protected; waiting for 1 resource: eni-0: blocked: vm-0"
    )


def test_the_last_look_and_the_release_are_no_resources() -> None:
    found = [obstacle("prod", "sg-1 is there again", what="look"), obstacle("eni-0", "vm-0")]
    assert obstacles_message(found, times=False) == (
        "waiting for 1 resource and the last look at what is left: blocked: sg-1 is there again; eni-0: blocked: vm-0"
    )
    released = [obstacle("c/things/u/1", "paused by policy", held=True, what="release")]
    assert obstacles_message(released, times=False) == "the release of the object needs a person: paused by policy"


def test_a_sentence_names_the_first_few_and_counts_the_rest() -> None:
    waiting = [obstacle(f"eni-{number}", f"vm-{number}", number) for number in range(12)]
    words = obstacles_message(waiting)
    assert words.startswith(
        "waiting for 12 resources: eni-0: blocked: vm-0, tried again at 2023-11-14 22:13:20 UTC; eni-1"
    )
    assert words.endswith("; and 4 more")
    assert len(words) < 1024
