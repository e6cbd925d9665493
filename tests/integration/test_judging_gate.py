"""The look right before a destructive call: what changed since the plan was made counts, at the object and its
Namespace, and one look serves a batch but nobody later."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from tests.clusters import TestApi
from tests.integration.staged import LANE, SOURCE, Stage, staged
from tests.servers import TestServer
from workers.handlers import places
from workers.handlers.places import Shared
from workers.handlers.protocol import NotCleared
from workers.judging import consent
from workers.judging.consent import LiveConsent


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        # What is published is planned at once; its jobs wait until a test lets them go.
        await made.stop_lanes()
        yield made


async def planned(stage: Stage, name: str = "w", targets: int = 2, **made: Any) -> Any:
    one = await stage.going(name, targets, **made)
    await stage.work()
    await stage.until_state(one, "running")
    return one


# ---- policy and protection, read again


@pytest.mark.invariant(3)
async def test_protection_put_on_after_the_plan_stops_every_call_and_is_shown(stage: Stage) -> None:
    one = await planned(stage)
    stage.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await stage.free_lanes()
    await stage.until_refused(one, "protected: annotation knell.dev/prevent-delete of the object says 'true'")
    assert stage.deletes == 0
    assert stage.there("w")
    stage.annotate("w", **{"knell.dev/prevent-delete": None})
    await stage.until_done(one)
    assert not stage.there("w")
    assert await stage.members("held") == {}


@pytest.mark.invariant(3)
async def test_protection_of_the_namespace_counts_too(stage: Stage) -> None:
    one = await planned(stage)
    stage.annotate_namespace(**{"services.k8s.aws/prevent-delete": "true"})
    await stage.free_lanes()
    await stage.until_refused(one, "of its Namespace")
    assert stage.deletes == 0


@pytest.mark.invariant(3)
@pytest.mark.invariant(7)
@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        ("knell.dev/dry-run", "true", "dry-run:"),
        ("knell.dev/deletion-policy", "perhaps", "allowed: delete, retain"),
        ("knell.dev/prevent-delete", "yes", "allowed: true, false"),
    ],
)
async def test_what_forbids_or_can_not_be_read_holds(stage: Stage, annotation: str, value: str, words: str) -> None:
    one = await planned(stage)
    stage.annotate("w", **{annotation: value})
    await stage.free_lanes()
    await stage.until_refused(one, words)
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(7)
async def test_a_changed_setting_holds_what_is_already_going(stage: Stage) -> None:
    one = await planned(stage)
    await stage.running[0].stop()
    stage.source(deletion_policy="retain")
    await stage.free_lanes()
    await stage.work()
    await stage.until_refused(one, "retain: its source's deletion_policy says retain")
    assert stage.deletes == 0
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(10)
async def test_what_is_not_cancelled_yet_of_a_withdrawn_deletion_is_not_removed(stage: Stage) -> None:
    one = await planned(stage)
    # Whoever withdrew it has died after the first of its jobs; the object itself says nothing.
    assert await stage.shard(one).withdraw(one.deletion, "retain: so", 1) == ("withdrawn", 1)
    await stage.free_lanes()

    async def asked() -> bool:
        return any(word in one for one in map(str, await stage.audit("outcome")) for word in ("withdrawn", "gone"))

    await stage.until("the other one has had its turn", asked)
    assert stage.deletes == 0
    await stage.tidy()
    await stage.until_done(one)
    assert stage.deletes == 0


@pytest.mark.invariant(10)
async def test_retain_said_on_the_object_keeps_what_is_left_and_lets_it_go(stage: Stage) -> None:
    one = await planned(stage)
    stage.annotate("w", **{"knell.dev/deletion-policy": "retain"})
    await stage.free_lanes()
    await stage.until_done(one)
    assert stage.deletes == 0
    assert stage.there("w")
    assert stage.read("w") is None
    assert (await stage.deletion(one))["withdrawn"].startswith("retain: annotation knell.dev/deletion-policy")


# ---- consent withdrawn


async def test_retain_said_on_an_object_that_left_its_selector_meanwhile_lets_it_go_too(stage: Stage) -> None:
    stage.source(selector="team=blue")
    one = await planned(stage, labels={"team": "blue"})
    stage.api.kube.patch(stage.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await stage.free_lanes()
    await stage.until_refused(one, "team=blue", "not released by that")
    stage.annotate("w", **{"knell.dev/deletion-policy": "retain"})
    await stage.until_state(one, "done")
    assert stage.read("w") is None
    assert stage.there("w")
    assert stage.deletes == 0


async def test_our_finalizer_taken_off_by_another_hand_cancels_what_is_open(stage: Stage) -> None:
    one = await planned(stage, targets=3, finalizers=[FINALIZER, "example.com/other"])
    stage.unmark("w", keep=("example.com/other",))
    await stage.free_lanes()
    await stage.until_done(one)
    assert stage.deletes == 0
    assert all(stage.there("w", number) for number in range(3))
    record = await stage.deletion(one)
    assert "does not have our finalizer" in record["withdrawn"]
    assert record["abandoned"] == "3"
    assert await stage.decisions("withdrawn") == [one.deletion]
    assert stage.read("w")["metadata"]["finalizers"] == ["example.com/other"]


@pytest.mark.invariant(8)
async def test_a_record_that_names_another_object_than_its_id_clears_nothing(stage: Stage) -> None:
    one = await planned(stage)
    other = await stage.going("other")
    await stage.until_state(other, "running")
    stage.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await stage.client.hset(
        stage.shard(one).stem + f"deletion:{one.deletion}", mapping={"uid": other.uid, "name": "other"}
    )
    await stage.free_lanes()
    await stage.until_done(other)

    async def handed_back() -> bool:
        return any("no record that can be read" in note for entry in await stage.audit("outcome") for note in entry)

    await stage.until("its jobs are handed back", handed_back)
    assert all(stage.there("w", number) for number in range(2))


@pytest.mark.invariant(1)
async def test_a_missing_object_cancels_nothing_unless_the_cluster_is_asked_who_it_is_after_it(stage: Stage) -> None:
    one = await planned(stage)
    stage.unmark("w")
    assert stage.read("w") is None
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await stage.client.hset(stage.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await stage.free_lanes()
    await stage.until_refused(one, "has always had uid the-one-before")
    assert "withdrawn" not in await stage.deletion(one)
    assert stage.deletes == 0


async def test_an_object_that_vanished_and_came_back_as_another_is_left_alone(stage: Stage) -> None:
    one = await planned(stage)
    stage.unmark("w")
    found = stage.make("w", 2)
    await stage.free_lanes()
    await stage.until_done(one)
    assert stage.deletes == 0
    assert f"has uid {found['metadata']['uid']}" in (await stage.deletion(one))["withdrawn"]
    assert stage.read("w")["metadata"]["finalizers"] == [FINALIZER]


# ---- sources


async def test_jobs_of_a_source_that_is_no_longer_declared_are_held(stage: Stage) -> None:
    one = await planned(stage)
    await stage.running[0].stop()
    declared = stage.settings.sources[SOURCE]
    stage.settings = type(stage.settings)(
        redis=stage.settings.redis, worker=stage.settings.worker, retry=stage.settings.retry,
        clusters=stage.settings.clusters, sources={"renamed": declared},
    )  # fmt: skip
    await stage.free_lanes()
    await stage.work()
    await stage.until_refused(one, f"source '{SOURCE}' is not declared")
    assert stage.deletes == 0


async def test_events_of_a_source_without_a_cluster_need_no_object(stage: Stage) -> None:
    from standins.provider.world import Object, Resource, Seed, TargetOf

    resource = Resource(account="acct", id="r", owner="o")
    owner = Object(uid="u", owner="o", targets=(TargetOf(account="acct", id="r"),))
    stage.provider.world.add(Seed(resources=(resource,), objects=(owner,)))
    one = stage.event({"metadata": {"uid": "u", "name": "n"}}, source="simulated", cluster="c", resource="things")
    await stage.free_lanes()
    await stage.publish(one)
    await stage.work()
    await stage.until_done(one)
    assert stage.deletes == 1


# ---- what can't be found out, and what it costs


@pytest.mark.parametrize("status", [0, 503])
async def test_no_call_is_made_while_the_cluster_can_not_be_asked(stage: Stage, status: int) -> None:
    one = await planned(stage)
    stage.front.refuse(status)
    await stage.free_lanes()

    async def failed() -> bool:
        jobs = await stage.jobs_of(one)
        return int((await stage.job(jobs[0])).get("attempts", 0)) >= 2

    await stage.until("attempts failed", failed)
    assert stage.deletes == 0
    assert "can't be looked at: Unavailable" in (await stage.job((await stage.jobs_of(one))[0]))["last_error"]
    stage.front.pass_on()
    await stage.until_done(one)
    assert stage.deletes == 2


@pytest.fixture
async def one_silent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Any]]:
    """Two objects whose jobs are taken together; the API server does not answer for the first, as long as a test
    lasts."""
    monkeypatch.setattr(places, "WITHIN", timedelta(minutes=10))
    monkeypatch.setattr(consent, "PATIENCE", timedelta(minutes=10))
    stage.change("worker", attempt_timeout=timedelta(minutes=10))
    events = [await stage.going(name, 1) for name in ("silent", "prompt")]
    await stage.work()
    for one in events:
        await stage.until_state(one, "running")
    stage.front.keep_waiting(lambda _, path: path.endswith("/silent"))
    yield events
    stage.front.pass_on()


async def test_an_object_that_can_not_be_looked_at_for_long_keeps_no_other_of_its_batch(
    stage: Stage, one_silent: list[Any]
) -> None:
    silent, prompt = one_silent
    await stage.free_lanes()
    await stage.until_done(prompt)
    assert stage.there("silent")
    stage.front.pass_on()
    await stage.until_done(silent)
    assert stage.deletes == 2


async def test_a_look_that_is_called_off_clears_nothing_and_is_no_failed_attempt(
    stage: Stage, one_silent: list[Any]
) -> None:
    asked = stage.running[0].worker.registry.consent
    assert isinstance(asked, LiveConsent)
    stage.front.asked.clear()
    looking = asyncio.ensure_future(asked.objection(one_silent[0].deletion))

    async def silent() -> bool:
        return stage.front.count("GET", "/silent") == 1

    await stage.until("it is looked at", silent)
    await asked.aclose()
    assert isinstance(await looking, NotCleared)


async def test_a_batch_costs_one_look_at_each_object(stage: Stage) -> None:
    events = [await stage.going(name, 20) for name in ("a", "b")]
    await stage.work()
    for one in events:
        await stage.until_state(one, "running")
    stage.front.asked.clear()
    await stage.free_lanes()
    for one in events:
        await stage.until_done(one)
    intents = [entry for entry in await stage.audit("intent") if entry["lane"] == LANE]
    assert stage.deletes == 40
    # One look for each batch that had jobs of it, and one more by the release.
    assert stage.front.count("GET", f"/{stage.crd.plural}/a") <= len(intents) + 1
    assert stage.front.count("GET", f"/{stage.crd.plural}/b") <= len(intents) + 1
    assert stage.front.count("GET", f"/namespaces/{stage.namespace}") <= 2 * len(intents) + 2
    assert len(intents) <= 4


async def test_a_shared_look_is_never_used_by_who_asks_later() -> None:
    begun: list[int] = []
    reading, gate = asyncio.Event(), asyncio.Event()

    async def read(key: str) -> int:
        begun.append(len(begun) + 1)
        number = begun[-1]
        reading.set()
        await gate.wait()
        return number

    shared = Shared(read)
    first, same = shared.ask("x"), shared.ask("x")
    await reading.wait()
    later, also_later = shared.ask("x"), shared.ask("x")
    gate.set()
    assert [await first, await same, await later, await also_later] == [1, 1, 2, 2]
    assert begun == [1, 2]
