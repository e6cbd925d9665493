"""What workers and sweeps do in a cluster that was restored from a backup: nothing, until a person has accepted it.
The Lease is made by hand here, as a watch side and a backup would have left it."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from service.contract.names import share_lease, sweep_lease
from service.kubernetes import Cluster
from service.policy.guard import PREFIX as GUARD
from service.settings import GuardSettings, WatchSettings
from service.watching.accepting import accept, standing
from service.watching.mending import ACCEPTED
from tests.clusters import TestApi
from tests.integration import azure_removing, staged
from tests.integration.azure_removing import azure, own_api, removing
from tests.integration.azure_sweeping import Sweeping, sweeping
from tests.integration.staged import Stage
from tests.integration.test_mending import observed, reasons
from tests.integration.watch_side import Side
from tests.integration.witnessed import made_lease, noted
from tests.servers import TestServer
from workers.sweeps.passing import NoPass

__all__ = ["azure", "own_api", "removing", "sweeping"]


# ---- observed objects


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged.staged(api, embedded_server, tmp_path, mode="observe") as made:
        watch = WatchSettings(namespace=made.namespace)
        made.settings = msgspec.structs.replace(made.settings, watch=watch)
        yield made


async def witness(stage: Stage, *, cluster: int, redis: int) -> None:
    name = share_lease(staged.SOURCE, 0)
    uid = made_lease(stage.api.kube, stage.namespace, name, cluster)
    await noted(stage.installation, stage.identity, f"{stage.namespace}/{name}", uid, redis)


async def accepted(stage: Stage) -> None:
    installation = stage.install()
    found = await standing(installation, stage.cluster, stage.identity)
    assert found.why
    await accept(installation, stage.cluster, stage.identity, found.record, "a person")


@pytest.mark.invariant(5)
async def test_an_event_of_an_object_that_is_missing_in_a_restored_cluster_is_held(stage: Stage) -> None:
    await witness(stage, cluster=3, redis=9)
    found = stage.make("w", marked=False)
    await stage.remember(found)
    stage.api.kube.delete(stage.path("w"))
    await stage.publish(one := stage.event(found))
    await stage.work()
    await stage.until_held(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert stage.there("w")
    await accepted(stage)
    await stage.until_done(one)
    assert not stage.there("w")


@pytest.mark.invariant(5)
async def test_a_cluster_that_is_restored_after_the_plan_is_noticed_before_the_call(stage: Stage) -> None:
    await witness(stage, cluster=9, redis=9)
    found = stage.make("w", marked=False)
    await stage.remember(found)
    stage.api.kube.delete(stage.path("w"))
    await stage.stop_lanes()
    await stage.publish(one := stage.event(found))
    await stage.work()

    async def planned() -> bool:
        return "plan" in await stage.deletion(one)

    await stage.until("it is planned", planned)
    await witness(stage, cluster=3, redis=9)
    await stage.free_lanes()
    await stage.until_refused(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert stage.deletes == 0
    await accepted(stage)
    await stage.until_done(one)


@pytest.mark.invariant(5)
async def test_an_object_with_our_finalizer_that_a_backup_lacks_is_not_taken_for_released(stage: Stage) -> None:
    stage.source(mode="finalizer")
    await witness(stage, cluster=3, redis=9)
    await stage.stop_lanes()
    one = await stage.going("w")
    await stage.work()

    async def planned() -> bool:
        return "plan" in await stage.deletion(one)

    await stage.until("it is planned", planned)
    stage.unmark("w")
    assert stage.read("w") is None
    await stage.free_lanes()
    await stage.until_refused(one, "restored from a backup", "`knell clusters accept-restore local`")
    assert stage.deletes == 0
    assert not (await stage.deletion(one)).get("withdrawn")


# ---- what was held goes on soon after the acceptance


@pytest.fixture
async def side(stage: Stage, cluster: Cluster) -> AsyncIterator[Side]:
    """By itself nothing that is held is looked at again while a test waits."""
    stage.have_patience()
    stage.source(namespaces=(stage.namespace,))
    made = Side(stage, cluster)
    yield made
    await made.end()


async def test_a_deletion_that_workers_held_goes_on_when_the_restore_is_accepted(stage: Stage, side: Side) -> None:
    run = await side.begin()
    await witness(stage, cluster=3, redis=9)
    await stage.work()
    one = await observed(stage, run, "w")
    await stage.until_held(one, "restored from a backup")
    assert stage.there("w")
    await accepted(stage)
    await stage.until_done(one)
    assert not stage.there("w")
    assert await reasons(stage) == {ACCEPTED}


async def test_jobs_that_workers_held_go_on_when_the_restore_is_accepted(stage: Stage, side: Side) -> None:
    run = await side.begin()
    await witness(stage, cluster=9, redis=9)
    await stage.stop_lanes()
    await stage.work()
    one = await observed(stage, run, "w")
    await stage.until_state(one, "running")
    await witness(stage, cluster=3, redis=9)
    await stage.free_lanes()
    await stage.until_refused(one, "restored from a backup")
    assert stage.there("w")
    await accepted(stage)
    await stage.until_done(one)
    assert not stage.there("w")
    assert await reasons(stage) == {f"1 refused jobs: {ACCEPTED}"}


async def test_what_the_guard_holds_waits_for_its_own_word(stage: Stage, side: Side) -> None:
    stage.source(guard=GuardSettings(most=1, percent=100))
    run = await side.begin()
    await stage.work()
    await stage.until_done(await observed(stage, run, "first"))
    guarded = await observed(stage, run, "guarded")
    await stage.until_held(guarded, GUARD)
    await witness(stage, cluster=3, redis=9)
    one = await observed(stage, run, "w")
    await stage.until_held(one, "restored from a backup")
    await accepted(stage)
    await stage.until_held(one, GUARD)
    assert await stage.decisions("replayed") == [f"deletion:{one.deletion}"]


async def test_one_read_of_the_witness_serves_all_that_are_judged_at_once(stage: Stage) -> None:
    await witness(stage, cluster=9, redis=9)
    events = []
    for number in range(40):
        found = stage.make(f"w{number}", marked=False)
        await stage.remember(found)
        stage.api.kube.delete(stage.path(f"w{number}"))
        events.append(stage.event(found))
    await stage.publish(*events)
    await stage.work()
    for one in events:
        await stage.until_done(one)
    objects = sum(stage.front.count("GET", f"/{one.name}") for one in events)
    reads = stage.front.count("GET", f"/{share_lease(staged.SOURCE, 0)}")
    assert 1 <= reads < objects / 2


# ---- sweeps


async def unwitnessed(sweeping: Sweeping, name: str) -> None:
    """The Lease is behind what Redis has."""
    home = sweeping.cloud.api.namespace()
    sweeping.settings = msgspec.structs.replace(sweeping.settings, watch=WatchSettings(namespace=home))
    uid = made_lease(sweeping.cloud.api.kube, home, name, 3)
    await noted(sweeping.installation, sweeping.identity, f"{home}/{name}", uid, 9)


@pytest.mark.invariant(5)
@pytest.mark.parametrize(
    "name", [share_lease(azure_removing.SOURCE, 0), sweep_lease(azure_removing.SOURCE)], ids=["watch", "sweep"]
)
async def test_a_restored_cluster_is_not_swept(sweeping: Sweeping, name: str) -> None:
    await sweeping.nic()
    await sweeping.sweep()
    await unwitnessed(sweeping, name)
    before = await sweeping.sightings(), await sweeping.orphans.last()
    with pytest.raises(NoPass, match="`knell clusters accept-restore here`"):
        await sweeping.sweep()
    assert (await sweeping.sightings(), await sweeping.orphans.last()) == before


@pytest.mark.invariant(5)
async def test_what_was_swept_before_the_restore_stays_where_it_is(sweeping: Sweeping) -> None:
    await sweeping.nic()
    await sweeping.ripe()
    (told,) = (await sweeping.told()).values()
    await unwitnessed(sweeping, share_lease(azure_removing.SOURCE, 0))
    await sweeping.work()

    async def held() -> bool:
        return "accept-restore here" in (await sweeping.deletion(told.id)).get("held", "")

    await sweeping.until("it is held", held)
    assert [view.state for view in (await sweeping.told()).values()] == ["held"]
