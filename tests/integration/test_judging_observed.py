"""Observed objects, which have no finalizer: gone is only what the inventory knew and the API server says is gone."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.contract import Hold, Plan
from service.engine.inventory import NamespaceAnnotations
from service.settings import GuardSettings
from tests.api_servers import TestApi
from tests.integration.judged_source import JudgedSource, judged_source
from tests.kube import wait_until
from tests.redis_servers import TestServer
from tests.simulated.handler import SimulatedHandler
from workers.handlers.collector import ObjectFacts


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path, mode="observe") as made:
        yield made


async def gone(judged: JudgedSource, name: str = "w", *, targets: int = 1, known: bool = True, **made: Any) -> Any:
    """An object that was observed and is gone, as it was last seen."""
    found = judged.make(name, targets, marked=False, **made)
    if known:
        await judged.remember(found)
    judged.api.kube.delete(judged.path(name))
    assert judged.read(name) is None
    return found


async def test_an_observed_object_that_is_gone_takes_its_resources_along_and_is_forgotten(judged: JudgedSource) -> None:
    found = await gone(judged, targets=2)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_done(one)
    assert judged.deletes == 2
    assert await judged.inventory.get(one.uid) is None


async def test_a_uid_that_the_inventory_does_not_hold_is_left_alone(judged: JudgedSource) -> None:
    found = await gone(judged, known=False)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_held(one, f"holds no object with uid {one.uid}")
    assert judged.there("w")


async def test_an_observed_object_that_is_still_there_is_left_alone(judged: JudgedSource) -> None:
    found = judged.make("w", marked=False)
    await judged.remember(found)
    # The event names an object that is not there: what the inventory saw counts.
    await judged.publish(one := judged.event(found, name="ghost"))
    await judged.work()
    await judged.until_held(one, f"{judged.namespace}/w is still there")
    assert judged.there("w")


async def test_what_the_watch_side_does_not_believe_is_left_alone(judged: JudgedSource) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, held="the resource version went back")
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_held(one, "its absence is not believed: the resource version went back")
    assert judged.there("w")


@pytest.mark.invariant(1)
async def test_an_absence_that_the_watch_side_has_not_proven_is_left_alone(judged: JudgedSource) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, gone=0)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_waiting(one, "is not proven by the watch side")
    assert judged.there("w")
    await judged.remember(found)
    await judged.until_done(one)


@pytest.mark.invariant(1)
async def test_an_absence_proves_nothing_while_the_crd_is_going(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with judged_source(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as judged:
        found = await gone(judged)
        # Another finalizer holds it, so that it stays in deletion for as long as this takes.
        api.kube.patch(crd.own_path, {"metadata": {"finalizers": ["example.com/hold"]}})
        api.kube.delete(crd.own_path)
        try:
            await judged.publish(one := judged.event(found))
            await judged.work()
            await judged.until_held(one, f"the CRD of {crd.resource} is going", "proves nothing")
            assert judged.there("w")
        finally:
            api.kube.patch(crd.own_path, {"metadata": {"finalizers": []}})


async def test_an_object_that_was_never_recognised_is_left_alone(judged: JudgedSource) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, data="", fault="its spec has no account")
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_held(one, "never recognised: its spec has no account")
    assert await judged.inventory.get(one.uid) is not None
    # What recognised it before will do.
    await judged.remember(found, fault="its spec has no account")
    await judged.until_done(one)
    assert not judged.there("w")


@pytest.mark.long  # a CRD goes at its own pace
async def test_an_object_of_a_crd_that_was_replaced_is_left_alone(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with judged_source(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as judged:
        found = judged.make("w", marked=False)
        await judged.remember(found, gone=0)
        api.kube.delete(crd.own_path)
        wait_until("the CRD is gone", lambda: api.kube.get(crd.own_path) is None)
        api.kube.install(crd)
        # The API server says 404, and the CRD is established: still it was not deleted.
        await judged.publish(one := judged.event(found))
        await judged.work()
        await judged.until_waiting(one, "is not proven by the watch side")
        assert judged.there("w")
        assert judged.deletes == 0


async def test_the_marks_that_the_inventory_kept_count(judged: JudgedSource) -> None:
    protected = await gone(judged, "p", annotations={"knell.dev/prevent-delete": "true"})
    retained = await gone(judged, "r", annotations={"knell.dev/deletion-policy": "retain"})
    await judged.publish(first := judged.event(protected), second := judged.event(retained))
    await judged.work()
    await judged.until_held(first, "protected:")
    await judged.until_done(second)
    assert judged.there("p")
    assert judged.there("r")
    assert judged.deletes == 0


@pytest.mark.invariant(9)
async def test_a_name_that_lives_again_keeps_what_is_recognised_by_name(judged: JudgedSource) -> None:
    by_name = await gone(judged, "n", owner="n")
    by_tag = await gone(judged, "t", owner="tag")
    for name in ("n", "t"):
        judged.make(name, 0, marked=False)
    await judged.publish(first := judged.event(by_name), second := judged.event(by_tag))
    await judged.work()
    await judged.until_done(first, second)
    assert judged.there("n")
    assert not judged.there("t")


@pytest.mark.long  # a CRD goes at its own pace
async def test_an_object_that_its_crd_took_along_is_left_alone(
    api: TestApi, embedded_server: TestServer, tmp_path: Path
) -> None:
    crd = api.crd()
    async with judged_source(api, embedded_server, tmp_path, own_crd=crd, mode="observe") as judged:
        found = await gone(judged)
        judged.make("holder", 0, marked=False, finalizers=["example.com/stays"])
        api.kube.delete(crd.own_path)
        wait_until("the CRD is going", lambda: "deletionTimestamp" in str(api.kube.get(crd.own_path)))
        await judged.publish(one := judged.event(found))
        await judged.work()
        await judged.until_held(one, "is going, so the absence of")
        judged.unmark("holder")
        wait_until("the CRD is gone", lambda: api.kube.get(crd.own_path) is None)
        await judged.until_held(one, "is not served")
        assert judged.there("w")
        assert judged.deletes == 0


@pytest.mark.parametrize(
    ("kept", "words"), [({"knell.dev/deletion-policy": "retain"}, "retain"), (None, "no record says how it was marked")]
)
async def test_a_namespace_that_went_with_its_objects_counts_as_it_was_last_seen(
    judged: JudgedSource, kept: dict[str, str] | None, words: str
) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, namespace_annotations=kept, namespace_at=1 if kept else 0)
    path = f"/api/v1/namespaces/{judged.namespace}"
    judged.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: judged.api.kube.get(path) is None)
    await judged.publish(one := judged.event(found))
    await judged.work()
    if kept is None:
        await judged.until_held(one, words)
    else:
        await judged.until_done(one)
        assert (await judged.deletion(one))["policy"].startswith(words)
    assert judged.there("w")


@pytest.mark.invariant(3)
async def test_a_record_lost_after_the_plan_stops_every_call(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    found = await gone(judged)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_state(one, "running")
    await judged.inventory.remove([one.uid])
    await judged.free_lanes()
    await judged.until_refused(one, "holds no object with uid")
    assert judged.deletes == 0


@pytest.mark.invariant(1)
async def test_absence_counts_only_if_the_cluster_identity_is_verified_afterwards(judged: JudgedSource) -> None:
    first, second = await gone(judged, "first"), await gone(judged, "second")
    await judged.publish(one := judged.event(first))
    await judged.work()
    await judged.until_done(one)
    # From here on the name leads elsewhere; that it was the right cluster a moment ago proves nothing.
    await judged.client.hset(judged.installation.keys.of(0, "clusters"), "local", "the-one-before")
    await judged.publish(other := judged.event(second))
    await judged.until_held(other, "has always had uid the-one-before")
    assert judged.there("second")


async def test_the_guard_goes_by_when_the_inventory_saw_it_gone_and_not_by_the_event(judged: JudgedSource) -> None:
    judged.source(guard=GuardSettings(most=1, percent=100))
    found = [await gone(judged, name) for name in ("a", "b")]
    events = [judged.event(one, at=1) for one in found]
    await judged.work()
    await judged.publish(events[0])
    await judged.until_done(events[0])
    await judged.publish(events[1])
    await judged.until_held(events[1], "guard:")
    assert judged.there("b")


@pytest.mark.invariant(9)
async def test_a_name_that_comes_back_after_the_plan_keeps_what_is_recognised_by_name(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    by_name, by_tag = await gone(judged, "n", owner="n"), await gone(judged, "t", owner="tag")
    await judged.publish(first := judged.event(by_name), second := judged.event(by_tag))
    await judged.work()
    for one in (first, second):
        await judged.until_state(one, "running")
    for name in ("n", "t"):
        judged.make(name, 0, marked=False)
    await judged.free_lanes()
    await judged.until_done(first, second)
    assert judged.there("n")
    assert not judged.there("t")
    assert "lives by now" in (await judged.deletion(first))["withdrawn"]


@pytest.mark.invariant(7)
@pytest.mark.invariant(9)
async def test_a_name_in_use_again_holds_while_it_is_unknown_what_is_recognised_by_it(
    judged: JudgedSource,
) -> None:
    class FailingCollector(SimulatedHandler):
        able = True

        async def collect(self, facts: ObjectFacts) -> Plan | Hold:
            return await super().collect(facts) if self.able else Hold("the account can't be asked", again=True)

    await judged.stop_lanes()
    found = await gone(judged, "t", owner="tag")
    await judged.publish(one := judged.event(found))
    async with FailingCollector(judged.provider.address) as collector:
        await judged.work(collector=collector)
        await judged.until_state(one, "running")
        judged.make("t", 0, marked=False)
        collector.able = False
        await judged.free_lanes()
        await judged.until_refused(one, "lives by now")
        assert judged.there("t")


@pytest.mark.invariant(3)
async def test_of_a_namespace_that_is_gone_the_latest_marks_count(judged: JudgedSource) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, namespace_annotations={}, namespace_at=1)
    later = NamespaceAnnotations({"knell.dev/deletion-policy": "retain"}, 2)
    await judged.inventory.save_namespace_annotations({judged.namespace: later})
    path = f"/api/v1/namespaces/{judged.namespace}"
    judged.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: judged.api.kube.get(path) is None)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_done(one)
    assert judged.there("w")


@pytest.mark.invariant(3)
async def test_of_a_namespace_that_is_gone_older_marks_than_those_seen_with_the_object_do_not_count(
    judged: JudgedSource,
) -> None:
    found = await gone(judged, known=False)
    await judged.remember(found, namespace_annotations={"knell.dev/deletion-policy": "retain"}, namespace_at=2)
    await judged.inventory.save_namespace_annotations({judged.namespace: NamespaceAnnotations({}, 1)})
    path = f"/api/v1/namespaces/{judged.namespace}"
    judged.api.kube.delete(path)
    wait_until("the Namespace is gone", lambda: judged.api.kube.get(path) is None)
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_done(one)
    assert judged.there("w")


async def test_a_paused_source_forgets_nothing(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    found = await gone(judged, targets=0)
    await judged.publish(one := judged.event(found))
    first = await judged.work()
    await judged.until_state(one, "releasing")
    await first.stop()
    judged.source(paused=True)
    await judged.free_lanes()
    await judged.work()
    await judged.until_refused(one, "paused")
    assert await judged.inventory.get(one.uid) is not None
