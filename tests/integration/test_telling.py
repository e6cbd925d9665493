"""What the owners of objects are told in their own cluster: Events and a condition, seldom enough, and never at the
engine's expense."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import CONDITION, FINALIZER
from service.local.provider.world import Resource, Seed
from service.settings import FeedbackSettings, GuardSettings
from service.stream.keys import deletion_of
from tests.clusters import TestApi
from tests.integration.staged import ACCOUNT, SOURCE, Stage, staged
from tests.integration.test_surface import surfaced
from tests.servers import TestServer
from workers.handlers.notes import Note, Reason
from workers.handlers.objects import about_event
from workers.handlers.places import Places
from workers.judging.records import Records
from workers.telling.teller import Teller
from workers.telling.words import Waiting, waited_for

OTHER = "example.com/other"


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        made.settings = msgspec.structs.replace(made.settings, feedback=FeedbackSettings())
        yield made


def events(stage: Stage, uid: str) -> list[tuple[str, str, str]]:
    """Type, reason and note of the Events about an object."""
    found = stage.api.kube.get(f"/apis/events.k8s.io/v1/namespaces/{stage.namespace}/events")
    assert found is not None
    return [(one["type"], one["reason"], one["note"]) for one in found["items"] if one["regarding"]["uid"] == uid]


async def until_event(stage: Stage, uid: str, reason: str) -> tuple[str, str]:
    async def told() -> tuple[str, str] | None:
        return next(((kind, note) for kind, of, note in events(stage, uid) if of == reason), None)

    found = await stage.until(f"an Event {reason} is there", told)
    assert found is not None
    return found


def condition(stage: Stage, name: str) -> dict[str, Any] | None:
    conditions = (stage.read(name).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == CONDITION), None)


async def until_condition(stage: Stage, name: str, reason: str, *words: str) -> dict[str, Any]:
    async def told() -> dict[str, Any] | None:
        found = condition(stage, name)
        fits = found is not None and found["reason"] == reason and all(word in found["message"] for word in words)
        return found if fits else None

    found = await stage.until(f"the condition says {reason}", told)
    assert found is not None
    return found


# ---- the story


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
    assert note.startswith("waiting for 1 resource: w-0: used by vm, tried again at 2")
    told = await until_condition(stage, "w", "CleanupWaiting", "used by vm")
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
        teller.heard(f"c/things/u{number}/1#1.0", "blocked", json.dumps({"target": "t"})[:-1], 1000)
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


def test_a_sentence_names_the_first_few_and_counts_the_rest() -> None:
    waiting = [Waiting(f"eni-{number}", "blocked", f"vm-{number}", 1_700_000_000_000 + number) for number in range(12)]
    words = waited_for(waiting)
    assert words.startswith(
        "waiting for 12 resources: eni-0: used by vm-0, tried again at 2023-11-14 22:13:20 UTC; eni-1"
    )
    assert words.endswith("; and 4 more")
    assert len(words) < 1024
