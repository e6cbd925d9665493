"""Observed objects, which nothing holds back: gone is only what the inventory knew and the API server says is gone."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.contract import Hold, Plan
from service.engine.inventory import NamespaceMarks
from service.settings import GuardSettings
from tests.clusters import TestApi
from tests.integration.staged import Stage, staged
from tests.kube import wait_until
from tests.servers import TestServer
from workers.handlers.objects import Facts
from workers.handlers.simulated import Simulated


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path, mode="observe") as made:
        yield made


async def gone(stage: Stage, name: str = "w", *, targets: int = 1, known: bool = True, **made: Any) -> Any:
    """An object that was observed and is gone, as it was last seen."""
    found = stage.make(name, targets, marked=False, **made)
    if known:
        await stage.remember(found)
    stage.api.kube.delete(stage.path(name))
    assert stage.read(name) is None
    return found


async def test_an_observed_object_that_is_gone_takes_its_resources_along_and_is_forgotten(stage: Stage) -> None:
    found = await gone(stage, targets=2)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_done(one)
    assert stage.deletes == 2
    assert await stage.inventory.recall_one(one.uid) is None


async def test_a_uid_that_the_inventory_does_not_hold_is_left_alone(stage: Stage) -> None:
    found = await gone(stage, known=False)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_held(one, f"holds no object with uid {one.uid}")
    assert stage.there("w")


async def test_an_observed_object_that_is_still_there_is_left_alone(stage: Stage) -> None:
    found = stage.make("w", marked=False)
    await stage.remember(found)
    # The event names an object that is not there: what the inventory saw counts.
    await stage.publish(one := stage.event(found, name="ghost"))
    await stage.work()
    await stage.until_held(one, f"{stage.namespace}/w is still there")
    assert stage.there("w")


async def test_what_the_watch_side_does_not_believe_is_left_alone(stage: Stage) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, held="the resource version went back")
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_held(one, "its absence is not believed: the resource version went back")
    assert stage.there("w")


@pytest.mark.invariant(1)
async def test_an_absence_that_the_watch_side_has_not_proven_is_left_alone(stage: Stage) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, gone=0)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_waiting(one, "is not proven by the watch side")
    assert stage.there("w")
    await stage.remember(found)
    await stage.until_done(one)


@pytest.mark.invariant(1)
async def test_an_absence_proves_nothing_while_the_crd_is_going(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with staged(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as stage:
        found = await gone(stage)
        # Somebody holds it back, so that it is going for as long as this takes.
        api.kube.patch(crd.own_path, {"metadata": {"finalizers": ["example.com/hold"]}})
        api.kube.delete(crd.own_path)
        try:
            await stage.publish(one := stage.event(found))
            await stage.work()
            await stage.until_held(one, f"the CRD of {crd.resource} is going", "proves nothing")
            assert stage.there("w")
        finally:
            api.kube.patch(crd.own_path, {"metadata": {"finalizers": []}})


async def test_an_object_that_was_never_recognised_is_left_alone(stage: Stage) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, data="", fault="its spec has no account")
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_held(one, "never recognised: its spec has no account")
    assert await stage.inventory.recall_one(one.uid) is not None
    # What recognised it before will do.
    await stage.remember(found, fault="its spec has no account")
    await stage.until_done(one)
    assert not stage.there("w")


@pytest.mark.long  # a CRD goes at its own pace
async def test_an_object_of_a_crd_that_was_replaced_is_left_alone(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with staged(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as stage:
        found = stage.make("w", marked=False)
        await stage.remember(found, gone=0)
        api.kube.delete(crd.own_path)
        wait_until("the CRD is gone", lambda: api.kube.get(crd.own_path) is None)
        api.kube.install(crd)
        # The API server says 404, and the CRD is established: still nobody deleted it.
        await stage.publish(one := stage.event(found))
        await stage.work()
        await stage.until_waiting(one, "is not proven by the watch side")
        assert stage.there("w")
        assert stage.deletes == 0


async def test_the_marks_that_the_inventory_kept_count(stage: Stage) -> None:
    protected = await gone(stage, "p", annotations={"knell.dev/prevent-delete": "true"})
    retained = await gone(stage, "r", annotations={"knell.dev/deletion-policy": "retain"})
    await stage.publish(first := stage.event(protected), second := stage.event(retained))
    await stage.work()
    await stage.until_held(first, "protected:")
    await stage.until_done(second)
    assert stage.there("p")
    assert stage.there("r")
    assert stage.deletes == 0


@pytest.mark.invariant(9)
async def test_a_name_that_lives_again_keeps_what_is_recognised_by_name(stage: Stage) -> None:
    by_name = await gone(stage, "n", owner="n")
    by_tag = await gone(stage, "t", owner="tag")
    for name in ("n", "t"):
        stage.make(name, 0, marked=False)
    await stage.publish(first := stage.event(by_name), second := stage.event(by_tag))
    await stage.work()
    await stage.until_done(first, second)
    assert stage.there("n")
    assert not stage.there("t")


@pytest.mark.long  # a CRD goes at its own pace
async def test_an_object_that_its_crd_took_along_is_left_alone(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with staged(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as stage:
        found = await gone(stage)
        stage.make("holder", 0, marked=False, finalizers=["example.com/stays"])
        api.kube.delete(crd.own_path)
        wait_until("the CRD is going", lambda: "deletionTimestamp" in str(api.kube.get(crd.own_path)))
        await stage.publish(one := stage.event(found))
        await stage.work()
        await stage.until_held(one, "is going, so the absence of")
        stage.unmark("holder")
        wait_until("the CRD is gone", lambda: api.kube.get(crd.own_path) is None)
        await stage.until_held(one, "is not served")
        assert stage.there("w")
        assert stage.deletes == 0


@pytest.mark.parametrize(
    ("kept", "words"), [({"knell.dev/deletion-policy": "retain"}, "retain"), (None, "no record says how it was marked")]
)
async def test_a_namespace_that_went_with_its_objects_counts_as_it_was_last_seen(
    stage: Stage, kept: dict[str, str] | None, words: str
) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, namespace_annotations=kept, namespace_at=1 if kept else 0)
    path = f"/api/v1/namespaces/{stage.namespace}"
    stage.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: stage.api.kube.get(path) is None)
    await stage.publish(one := stage.event(found))
    await stage.work()
    if kept is None:
        await stage.until_held(one, words)
    else:
        await stage.until_done(one)
        assert (await stage.deletion(one))["policy"].startswith(words)
    assert stage.there("w")


@pytest.mark.invariant(3)
async def test_a_record_lost_after_the_plan_stops_every_call(stage: Stage) -> None:
    await stage.stop_lanes()
    found = await gone(stage)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_state(one, "running")
    await stage.inventory.forget([one.uid])
    await stage.free_lanes()
    await stage.until_refused(one, "holds no object with uid")
    assert stage.deletes == 0


@pytest.mark.invariant(1)
async def test_absence_counts_only_in_a_cluster_that_was_asked_who_it_is_after_it(stage: Stage) -> None:
    first, second = await gone(stage, "first"), await gone(stage, "second")
    await stage.publish(one := stage.event(first))
    await stage.work()
    await stage.until_done(one)
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await stage.client.hset(stage.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await stage.publish(other := stage.event(second))
    await stage.until_held(other, "has always had uid the-one-before")
    assert stage.there("second")


async def test_the_guard_goes_by_when_the_inventory_saw_it_gone_and_not_by_the_event(stage: Stage) -> None:
    stage.source(guard=GuardSettings(most=1, percent=100))
    found = [await gone(stage, name) for name in ("a", "b")]
    events = [stage.event(one, at=1) for one in found]
    await stage.work()
    await stage.publish(events[0])
    await stage.until_done(events[0])
    await stage.publish(events[1])
    await stage.until_held(events[1], "guard:")
    assert stage.there("b")


@pytest.mark.invariant(9)
async def test_a_name_that_comes_back_after_the_plan_keeps_what_is_recognised_by_name(stage: Stage) -> None:
    await stage.stop_lanes()
    by_name, by_tag = await gone(stage, "n", owner="n"), await gone(stage, "t", owner="tag")
    await stage.publish(first := stage.event(by_name), second := stage.event(by_tag))
    await stage.work()
    for one in (first, second):
        await stage.until_state(one, "running")
    for name in ("n", "t"):
        stage.make(name, 0, marked=False)
    await stage.free_lanes()
    await stage.until_done(first, second)
    assert stage.there("n")
    assert not stage.there("t")
    assert "lives by now" in (await stage.deletion(first))["withdrawn"]


@pytest.mark.invariant(7)
@pytest.mark.invariant(9)
async def test_a_name_that_comes_back_holds_as_long_as_nobody_can_tell_what_is_recognised_by_it(stage: Stage) -> None:
    class Unable(Simulated):
        able = True

        async def collect(self, facts: Facts) -> Plan | Hold:
            return await super().collect(facts) if self.able else Hold("the account can't be asked", again=True)

    await stage.stop_lanes()
    found = await gone(stage, "t", owner="tag")
    await stage.publish(one := stage.event(found))
    async with Unable(stage.provider.address) as collector:
        await stage.work(collector=collector)
        await stage.until_state(one, "running")
        stage.make("t", 0, marked=False)
        collector.able = False
        await stage.free_lanes()
        await stage.until_refused(one, "lives by now")
        assert stage.there("t")


@pytest.mark.invariant(3)
async def test_of_a_namespace_that_is_gone_the_latest_marks_count(stage: Stage) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, namespace_annotations={}, namespace_at=1)
    later = NamespaceMarks({"knell.dev/deletion-policy": "retain"}, 2)
    await stage.inventory.note_marks({stage.namespace: later})
    path = f"/api/v1/namespaces/{stage.namespace}"
    stage.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: stage.api.kube.get(path) is None)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_done(one)
    assert stage.there("w")


@pytest.mark.invariant(3)
async def test_of_a_namespace_that_is_gone_older_marks_than_those_seen_with_the_object_do_not_count(
    stage: Stage,
) -> None:
    found = await gone(stage, known=False)
    await stage.remember(found, namespace_annotations={"knell.dev/deletion-policy": "retain"}, namespace_at=2)
    await stage.inventory.note_marks({stage.namespace: NamespaceMarks({}, 1)})
    path = f"/api/v1/namespaces/{stage.namespace}"
    stage.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: stage.api.kube.get(path) is None)
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_done(one)
    assert stage.there("w")


async def test_a_paused_source_forgets_nothing(stage: Stage) -> None:
    await stage.stop_lanes()
    found = await gone(stage, targets=0)
    await stage.publish(one := stage.event(found))
    first = await stage.work()
    await stage.until_state(one, "releasing")
    await first.stop()
    stage.source(paused=True)
    await stage.free_lanes()
    await stage.work()
    await stage.until_refused(one, "paused")
    assert await stage.inventory.recall_one(one.uid) is not None
