"""Workers and sweeps in a cluster restored from a backup do nothing until an operator has accepted the restore.
The Lease is created by the test, as a watch side and a backup would have left it."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.names import share_lease, sweep_lease
from service.kubernetes import KubernetesClient
from service.policy.guard import PREFIX as GUARD
from service.settings import GuardSettings, WatchSettings
from service.watching.recheck import RESTORE_ACCEPTED
from service.watching.restored_cluster import accept_restore, restore_state
from tests.api_servers import TestApi
from tests.integration import azure_removal, judged_source
from tests.integration.azure_removal import azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, sweeping
from tests.integration.judged_source import JudgedSource
from tests.integration.restorable_cluster import made_lease, noted
from tests.integration.test_watching_held_scan import observed, reasons
from tests.integration.watch_side import WatchSide
from tests.redis_servers import TestServer
from workers.sweeps.sweep_pass import SweepAborted

__all__ = ["azure", "own_api", "removing", "sweeping"]


# ---- observed objects


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source.judged_source(api, embedded_server, tmp_path, mode="observe") as made:
        watch = WatchSettings(namespace=made.namespace)
        made.settings = msgspec.structs.replace(made.settings, watch=watch)
        yield made


async def witness(judged: JudgedSource, *, cluster: int, redis: int) -> None:
    name = share_lease(judged_source.SOURCE, 0)
    uid = made_lease(judged.api.kube, judged.namespace, name, cluster)
    await noted(judged.installation, judged.identity, f"{judged.namespace}/{name}", uid, redis)


async def accepted(judged: JudgedSource) -> None:
    installation = judged.install()
    found = await restore_state(installation, judged.cluster, judged.identity)
    assert found.why
    await accept_restore(installation, judged.cluster, judged.identity, found.record, "a person")


@pytest.mark.invariant(5)
async def test_an_event_of_an_object_that_is_missing_in_a_restored_cluster_is_held(judged: JudgedSource) -> None:
    await witness(judged, cluster=3, redis=9)
    found = judged.make("w", marked=False)
    await judged.remember(found)
    judged.api.kube.delete(judged.path("w"))
    await judged.publish(one := judged.event(found))
    await judged.work()
    await judged.until_held(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert judged.there("w")
    await accepted(judged)
    await judged.until_done(one)
    assert not judged.there("w")


@pytest.mark.invariant(5)
async def test_a_cluster_that_is_restored_after_the_plan_is_noticed_before_the_call(judged: JudgedSource) -> None:
    await witness(judged, cluster=9, redis=9)
    found = judged.make("w", marked=False)
    await judged.remember(found)
    judged.api.kube.delete(judged.path("w"))
    await judged.stop_lanes()
    await judged.publish(one := judged.event(found))
    await judged.work()

    async def planned() -> bool:
        return "plan" in await judged.deletion(one)

    await judged.until("it is planned", planned)
    await witness(judged, cluster=3, redis=9)
    await judged.free_lanes()
    await judged.until_refused(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert judged.deletes == 0
    await accepted(judged)
    await judged.until_done(one)


@pytest.mark.invariant(5)
async def test_an_object_with_our_finalizer_that_a_backup_lacks_is_not_taken_for_released(judged: JudgedSource) -> None:
    judged.source(mode="finalizer")
    await witness(judged, cluster=3, redis=9)
    await judged.stop_lanes()
    one = await judged.going("w")
    await judged.work()

    async def planned() -> bool:
        return "plan" in await judged.deletion(one)

    await judged.until("it is planned", planned)
    judged.unmark("w")
    assert judged.read("w") is None
    await judged.free_lanes()
    await judged.until_refused(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert judged.deletes == 0
    assert not (await judged.deletion(one)).get("withdrawn")


# ---- what was held goes on soon after the acceptance


@pytest.fixture
async def side(judged: JudgedSource, cluster: KubernetesClient) -> AsyncIterator[WatchSide]:
    """By itself nothing that is held is looked at again while a test waits."""
    judged.have_patience()
    judged.source(namespaces=(judged.namespace,))
    made = WatchSide(judged, cluster)
    yield made
    await made.end()


async def test_a_deletion_that_workers_held_goes_on_when_the_restore_is_accepted(
    judged: JudgedSource, side: WatchSide
) -> None:
    run = await side.begin()
    await witness(judged, cluster=3, redis=9)
    await judged.work()
    one = await observed(judged, run, "w")
    await judged.until_held(one, "restored from a backup")
    assert judged.there("w")
    await accepted(judged)
    await judged.until_done(one)
    assert not judged.there("w")
    assert await reasons(judged) == {RESTORE_ACCEPTED}


async def test_jobs_that_workers_held_go_on_when_the_restore_is_accepted(judged: JudgedSource, side: WatchSide) -> None:
    run = await side.begin()
    await witness(judged, cluster=9, redis=9)
    await judged.stop_lanes()
    await judged.work()
    one = await observed(judged, run, "w")
    await judged.until_state(one, "running")
    await witness(judged, cluster=3, redis=9)
    await judged.free_lanes()
    await judged.until_refused(one, "restored from a backup")
    assert judged.there("w")
    await accepted(judged)
    await judged.until_done(one)
    assert not judged.there("w")
    assert await reasons(judged) == {f"1 refused jobs: {RESTORE_ACCEPTED}"}


async def test_what_the_guard_holds_waits_for_its_own_word(judged: JudgedSource, side: WatchSide) -> None:
    judged.source(guard=GuardSettings(most=1, percent=100))
    run = await side.begin()
    await judged.work()
    await judged.until_done(await observed(judged, run, "first"))
    guarded = await observed(judged, run, "guarded")
    await judged.until_held(guarded, GUARD)
    await witness(judged, cluster=3, redis=9)
    one = await observed(judged, run, "w")
    await judged.until_held(one, "restored from a backup")
    await accepted(judged)
    await judged.until_held(one, GUARD)
    assert await judged.decisions("replayed") == [f"deletion:{one.deletion}"]


async def test_one_read_of_the_witness_serves_all_that_are_judged_at_once(judged: JudgedSource) -> None:
    await witness(judged, cluster=9, redis=9)
    events = []
    for number in range(40):
        found = judged.make(f"w{number}", marked=False)
        await judged.remember(found)
        judged.api.kube.delete(judged.path(f"w{number}"))
        events.append(judged.event(found))
    await judged.publish(*events)
    await judged.work()
    for one in events:
        await judged.until_done(one)
    objects = sum(judged.proxy.count("GET", f"/{one.name}") for one in events)
    reads = judged.proxy.count("GET", f"/{share_lease(judged_source.SOURCE, 0)}")
    assert 1 <= reads < objects / 2


# ---- sweeps


async def unwitnessed(sweeping: AzureSweepFixture, name: str) -> None:
    """The Lease is behind what Redis has."""
    home = sweeping.cloud.api.namespace()
    sweeping.settings = msgspec.structs.replace(sweeping.settings, watch=WatchSettings(namespace=home))
    uid = made_lease(sweeping.cloud.api.kube, home, name, 3)
    await noted(sweeping.installation, sweeping.identity, f"{home}/{name}", uid, 9)


@pytest.mark.invariant(5)
@pytest.mark.parametrize(
    "name", [share_lease(azure_removal.SOURCE, 0), sweep_lease(azure_removal.SOURCE)], ids=["watch", "sweep"]
)
async def test_a_restored_cluster_is_not_swept(sweeping: AzureSweepFixture, name: str) -> None:
    await sweeping.nic()
    await sweeping.sweep()
    await unwitnessed(sweeping, name)
    before = await sweeping.sightings(), await sweeping.orphans.last_pass_at()
    with pytest.raises(SweepAborted, match="`knell clusters accept-restore here`"):
        await sweeping.sweep()
    assert (await sweeping.sightings(), await sweeping.orphans.last_pass_at()) == before


@pytest.mark.invariant(5)
async def test_what_was_swept_before_the_restore_stays_where_it_is(sweeping: AzureSweepFixture) -> None:
    await sweeping.nic()
    await sweeping.ripe()
    (told,) = (await sweeping.published()).values()
    await unwitnessed(sweeping, share_lease(azure_removal.SOURCE, 0))
    await sweeping.work()

    async def held() -> bool:
        return "accept-restore here" in (await sweeping.deletion(told.id)).get("held", "")

    await sweeping.until("it is held", held)
    assert [view.state for view in (await sweeping.published()).values()] == ["held"]
