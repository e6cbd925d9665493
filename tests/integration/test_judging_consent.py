"""Consent right before a destructive call: changes of the object and its Namespace since the plan count, and one check
serves a batch but no later call."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import FINALIZER
from tests.api_servers import TestApi
from tests.integration.judged_source import LANE, SOURCE, JudgedSource, judged_source
from tests.redis_servers import TestServer
from workers.handlers import source_clusters
from workers.handlers.protocol import NotCleared
from workers.judging import consent
from workers.judging.consent import ConsentCheck


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        # What is published is planned at once; its jobs wait until a test lets them go.
        await made.stop_lanes()
        yield made


async def planned(judged: JudgedSource, name: str = "w", targets: int = 2, **made: Any) -> Any:
    one = await judged.going(name, targets, **made)
    await judged.work()
    await judged.until_state(one, "running")
    return one


# ---- policy and protection, read again


@pytest.mark.invariant(3)
async def test_protection_put_on_after_the_plan_stops_every_call_and_is_shown(judged: JudgedSource) -> None:
    one = await planned(judged)
    judged.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await judged.free_lanes()
    await judged.until_refused(one, "protected: annotation knell.dev/prevent-delete of the object says 'true'")
    assert judged.deletes == 0
    assert judged.there("w")
    judged.annotate("w", **{"knell.dev/prevent-delete": None})
    await judged.until_done(one)
    assert not judged.there("w")
    assert await judged.members("held") == {}


@pytest.mark.invariant(3)
async def test_protection_of_the_namespace_counts_too(judged: JudgedSource) -> None:
    one = await planned(judged)
    judged.annotate_namespace(**{"services.k8s.aws/prevent-delete": "true"})
    await judged.free_lanes()
    await judged.until_refused(one, "of its Namespace")
    assert judged.deletes == 0


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
async def test_what_forbids_or_can_not_be_read_holds(
    judged: JudgedSource, annotation: str, value: str, words: str
) -> None:
    one = await planned(judged)
    judged.annotate("w", **{annotation: value})
    await judged.free_lanes()
    await judged.until_refused(one, words)
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(7)
async def test_a_changed_setting_holds_what_is_already_going(judged: JudgedSource) -> None:
    one = await planned(judged)
    await judged.running[0].stop()
    judged.source(deletion_policy="retain")
    await judged.free_lanes()
    await judged.work()
    await judged.until_refused(one, "retain: its source's deletion_policy says retain")
    assert judged.deletes == 0
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.invariant(10)
async def test_what_is_not_cancelled_yet_of_a_withdrawn_deletion_is_not_removed(judged: JudgedSource) -> None:
    one = await planned(judged)
    # Whoever withdrew it has died after the first of its jobs; the object itself says nothing.
    assert await judged.shard(one).withdraw(one.deletion, "retain: so", 1) == ("withdrawn", 1)
    await judged.free_lanes()

    async def asked() -> bool:
        return any(word in one for one in map(str, await judged.audit("outcome")) for word in ("withdrawn", "gone"))

    await judged.until("the other one has had its turn", asked)
    assert judged.deletes == 0
    await judged.tidy()
    await judged.until_done(one)
    assert judged.deletes == 0


@pytest.mark.invariant(10)
async def test_retain_said_on_the_object_keeps_what_is_left_and_lets_it_go(judged: JudgedSource) -> None:
    one = await planned(judged)
    judged.annotate("w", **{"knell.dev/deletion-policy": "retain"})
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.deletes == 0
    assert judged.there("w")
    assert judged.read("w") is None
    assert (await judged.deletion(one))["withdrawn"].startswith("retain: annotation knell.dev/deletion-policy")


# ---- consent withdrawn


async def test_retain_said_on_an_object_that_left_its_selector_meanwhile_lets_it_go_too(judged: JudgedSource) -> None:
    judged.source(selector="team=blue")
    one = await planned(judged, labels={"team": "blue"})
    judged.api.kube.patch(judged.path("w"), {"metadata": {"labels": {"team": "red"}}})
    await judged.free_lanes()
    await judged.until_refused(one, "team=blue", "not released by that")
    judged.annotate("w", **{"knell.dev/deletion-policy": "retain"})
    await judged.until_state(one, "done")
    assert judged.read("w") is None
    assert judged.there("w")
    assert judged.deletes == 0


async def test_our_finalizer_taken_off_by_another_hand_cancels_what_is_open(judged: JudgedSource) -> None:
    one = await planned(judged, targets=3, finalizers=[FINALIZER, "example.com/other"])
    judged.unmark("w", keep=("example.com/other",))
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.deletes == 0
    assert all(judged.there("w", number) for number in range(3))
    record = await judged.deletion(one)
    assert "does not have our finalizer" in record["withdrawn"]
    assert record["abandoned"] == "3"
    assert await judged.decisions("withdrawn") == [one.deletion]
    assert judged.read("w")["metadata"]["finalizers"] == ["example.com/other"]


@pytest.mark.invariant(8)
async def test_a_record_that_names_another_object_than_its_id_clears_nothing(judged: JudgedSource) -> None:
    one = await planned(judged)
    other = await judged.going("other")
    await judged.until_state(other, "running")
    judged.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await judged.client.hset(
        judged.shard(one).stem + f"deletion:{one.deletion}", mapping={"uid": other.uid, "name": "other"}
    )
    await judged.free_lanes()
    await judged.until_done(other)

    async def handed_back() -> bool:
        return any("no record that can be read" in note for entry in await judged.audit("outcome") for note in entry)

    await judged.until("its jobs are handed back", handed_back)
    assert all(judged.there("w", number) for number in range(2))


@pytest.mark.invariant(1)
async def test_a_missing_object_cancels_nothing_unless_the_cluster_identity_is_verified_afterwards(
    judged: JudgedSource,
) -> None:
    one = await planned(judged)
    judged.unmark("w")
    assert judged.read("w") is None
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await judged.client.hset(judged.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await judged.free_lanes()
    await judged.until_refused(one, "has always had uid the-one-before")
    assert "withdrawn" not in await judged.deletion(one)
    assert judged.deletes == 0


async def test_an_object_that_vanished_and_came_back_as_another_is_left_alone(judged: JudgedSource) -> None:
    one = await planned(judged)
    judged.unmark("w")
    found = judged.make("w", 2)
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.deletes == 0
    assert f"has uid {found['metadata']['uid']}" in (await judged.deletion(one))["withdrawn"]
    assert judged.read("w")["metadata"]["finalizers"] == [FINALIZER]


# ---- sources


async def test_jobs_of_a_source_that_is_no_longer_declared_are_held(judged: JudgedSource) -> None:
    one = await planned(judged)
    await judged.running[0].stop()
    declared = judged.settings.sources[SOURCE]
    judged.settings = type(judged.settings)(
        redis=judged.settings.redis, worker=judged.settings.worker, retry=judged.settings.retry,
        clusters=judged.settings.clusters, sources={"renamed": declared},
    )  # fmt: skip
    await judged.free_lanes()
    await judged.work()
    await judged.until_refused(one, f"source '{SOURCE}' is not declared")
    assert judged.deletes == 0


async def test_events_of_a_source_that_is_not_declared_are_held(judged: JudgedSource) -> None:
    judged.make("w")
    one = judged.event(judged.delete("w"), source="simulated")
    await judged.free_lanes()
    await judged.publish(one)
    await judged.work()
    await judged.until_held(one, "no planner for source 'simulated'")
    assert judged.deletes == 0
    assert judged.there("w")


# ---- what can't be found out, and what it costs


@pytest.mark.parametrize("status", [0, 503])
async def test_no_call_is_made_while_the_cluster_can_not_be_asked(judged: JudgedSource, status: int) -> None:
    one = await planned(judged)
    judged.proxy.refuse(status)
    await judged.free_lanes()

    async def failed() -> bool:
        jobs = await judged.jobs_of(one)
        return int((await judged.job(jobs[0])).get("attempts", 0)) >= 2

    await judged.until("attempts failed", failed)
    assert judged.deletes == 0
    assert "can't be looked at: Unavailable" in (await judged.job((await judged.jobs_of(one))[0]))["last_error"]
    judged.proxy.pass_on()
    await judged.until_done(one)
    assert judged.deletes == 2


@pytest.fixture
async def one_silent(judged: JudgedSource, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Any]]:
    """Two objects whose jobs are taken together; the API server does not answer for the first, as long as a test
    lasts."""
    monkeypatch.setattr(source_clusters, "WITHIN", timedelta(minutes=10))
    monkeypatch.setattr(consent, "PATIENCE", timedelta(minutes=10))
    judged.change("worker", attempt_timeout=timedelta(minutes=10))
    events = [await judged.going(name, 1) for name in ("silent", "prompt")]
    await judged.work()
    for one in events:
        await judged.until_state(one, "running")
    judged.proxy.keep_waiting(lambda _, path: path.endswith("/silent"))
    yield events
    judged.proxy.pass_on()


async def test_an_object_that_can_not_be_looked_at_for_long_keeps_no_other_of_its_batch(
    judged: JudgedSource, one_silent: list[Any]
) -> None:
    silent, prompt = one_silent
    await judged.free_lanes()
    await judged.until_done(prompt)
    assert judged.there("silent")
    judged.proxy.pass_on()
    await judged.until_done(silent)
    assert judged.deletes == 2


async def test_a_look_that_is_called_off_clears_nothing_and_is_no_failed_attempt(
    judged: JudgedSource, one_silent: list[Any]
) -> None:
    asked = judged.running[0].worker.registry.consent
    assert isinstance(asked, ConsentCheck)
    judged.proxy.asked.clear()
    looking = asyncio.ensure_future(asked.objection(one_silent[0].deletion))

    async def silent() -> bool:
        return judged.proxy.count("GET", "/silent") == 1

    await judged.until("it is looked at", silent)
    await asked.aclose()
    assert isinstance(await looking, NotCleared)


async def test_a_batch_costs_one_look_at_each_object(judged: JudgedSource) -> None:
    events = [await judged.going(name, 20) for name in ("a", "b")]
    await judged.work()
    for one in events:
        await judged.until_state(one, "running")
    judged.proxy.asked.clear()
    await judged.free_lanes()
    for one in events:
        await judged.until_done(one)
    intents = [entry for entry in await judged.audit("intent") if entry["lane"] == LANE]
    assert judged.deletes == 40
    # One look for each batch that had jobs of it, and one more by the release.
    assert judged.proxy.count("GET", f"/{judged.crd.plural}/a") <= len(intents) + 1
    assert judged.proxy.count("GET", f"/{judged.crd.plural}/b") <= len(intents) + 1
    assert judged.proxy.count("GET", f"/namespaces/{judged.namespace}") <= 2 * len(intents) + 2
    assert len(intents) <= 4
