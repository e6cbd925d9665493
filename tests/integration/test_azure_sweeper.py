"""Sweep loop: only one process makes passes, at times that survive a restart, and again after a failure."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from service.contract.names import sweep_lease
from service.settings import WatchSettings
from service.sources.karpenter_azure import AzureSettings
from standins.azure import AzureFault
from tests.integration.azure_removal import SOURCE, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, no_places, sweeping
from workers.handlers.orphans import SweepSchedule
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_source_clusters
from workers.sweeps.sweep_pass import SweepResult
from workers.sweeps.sweeper import Sweeper, lease_counting

__all__ = ["azure", "own_api", "removing", "sweeping"]

OnePass = Callable[[], Awaitable[SweepResult]]


class CountedPasses:
    """Real ones, counted. `wait` holds them before they begin."""

    def __init__(self, sweeping: AzureSweepFixture) -> None:
        self._sweeping = sweeping
        self.begun = self.made = self.cancelled = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> SweepResult:
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        swept = await self._sweeping.sweep()
        self.made += 1
        return swept


@pytest.fixture(autouse=True)
def home(sweeping: AzureSweepFixture) -> str:
    """Where the Lease is."""
    name = sweeping.cloud.api.namespace()
    watch = WatchSettings(namespace=name, retry=timedelta(milliseconds=200), lease=timedelta(seconds=30))
    sweeping.settings = msgspec.structs.replace(sweeping.settings, watch=watch)
    return name


def made_of(sweeping: AzureSweepFixture, places: SourceClusters, passes: OnePass, holder: str) -> Sweeper:
    settings, counting = sweeping.settings, lease_counting(sweeping.settings, sweeping.installation)
    sweep = settings.section(AzureSettings).sweep
    schedule = SweepSchedule(enabled=sweep.enabled, every=sweep.every, age=sweep.age)
    return Sweeper(settings, places, sweeping.orphans, SOURCE, holder, schedule, passes, counting)


@asynccontextmanager
async def running(
    sweeping: AzureSweepFixture, passes: OnePass, holder: str = "one"
) -> AsyncIterator["asyncio.Task[None]"]:
    places = build_source_clusters(sweeping.settings, {"here": sweeping.cluster}, sweeping.installation)
    sweeper = made_of(sweeping, places, passes, holder)
    task = asyncio.create_task(sweeper.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await places.aclose()


async def facts(sweeping: AzureSweepFixture) -> dict[str, str]:
    return await sweeping.inventory.state()


def lease(sweeping: AzureSweepFixture, home: str) -> Any:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{sweep_lease(SOURCE)}"
    return sweeping.cloud.kube.get(path)


async def test_passes_come_again_and_again(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(milliseconds=50))
    passes = CountedPasses(sweeping)

    async def three() -> bool:
        return passes.made >= 3

    async with running(sweeping, passes):
        await sweeping.until("three were made", three)
    noted = await facts(sweeping)
    assert (noted["sweep_by"], noted["sweep_found"]) == ("graph", "0")


async def test_the_due_time_of_the_next_pass_survives_a_takeover(sweeping: AzureSweepFixture, home: str) -> None:
    sweeping.sweeps(every=timedelta(hours=1))
    passes = CountedPasses(sweeping)

    async def made() -> bool:
        return passes.made == 1

    async def held() -> bool:
        found = lease(sweeping, home)
        return found is not None and str(found["spec"].get("holderIdentity", "")).startswith("two")

    async with running(sweeping, passes):
        await sweeping.until("the first is made, for there was none", made)
    async with running(sweeping, passes, "two"):
        await sweeping.until("another has the Lease", held)
        await sweeping.stays("it waits for its time", made, timedelta(milliseconds=300))
    await sweeping.jump(timedelta(hours=1))

    async def second() -> bool:
        return passes.made == 2

    async with running(sweeping, passes, "three"):
        await sweeping.until("the next one is made when it is due", second)


async def test_a_last_pass_that_lies_in_the_future_is_none(sweeping: AzureSweepFixture) -> None:
    """The server's clock went back, or its memory is that of another server: nobody waits until then."""
    sweeping.sweeps(every=timedelta(hours=1))
    await sweeping.orphans.save_state({"sweep_at": await sweeping.orphans.now() + 24 * 60 * 60 * 1000})
    passes = CountedPasses(sweeping)

    async def made() -> bool:
        return passes.made == 1

    async with running(sweeping, passes):
        await sweeping.until("one is made at once", made)
    assert await sweeping.orphans.last_pass_at() <= await sweeping.orphans.now()


async def test_machines_in_a_group_of_no_node_are_shown_as_the_sources_problem(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(milliseconds=50), age=timedelta(0))
    await sweeping.cloud.vm(f"aks-{sweeping.cloud.name('a')}")
    sweeping.cloud.clear()

    async def doubted() -> bool:
        return "1 machines seem to be orphans in a group in which no Node" in (await facts(sweeping)).get(
            "problem@sweep", ""
        )

    async def settled() -> bool:
        return "problem@sweep" not in await facts(sweeping)

    async with running(sweeping, CountedPasses(sweeping)):
        await sweeping.until("it is shown", doubted)
        assert await sweeping.published() == {}
        sweeping.cloud.settle()
        await sweeping.until("it is no problem any more", settled)
    assert len(await sweeping.published()) == 1


async def test_rows_without_an_id_are_shown_as_the_sources_problem(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(milliseconds=50))
    claim = await sweeping.nic()
    await sweeping.cloud.azure.behave(graph_without_guid=(f"aks-{claim}",))

    async def shown() -> bool:
        return "1 resources have no id" in (await facts(sweeping)).get("problem@sweep", "")

    async with running(sweeping, CountedPasses(sweeping)):
        await sweeping.until("it is shown", shown)


async def test_a_pass_that_fails_is_shown_and_made_again_soon(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(seconds=15))
    passes = CountedPasses(sweeping)
    await sweeping.cloud.azure.set_faults(AzureFault(what="error", code="InternalServerError", message="no"))

    async def troubled() -> bool:
        return "InternalServerError" in (await facts(sweeping)).get("problem@sweep", "")

    async def mended() -> bool:
        return passes.made == 1 and "problem@sweep" not in await facts(sweeping)

    async with running(sweeping, passes):
        await sweeping.until("it is shown what is wrong", troubled)
        assert await sweeping.orphans.last_pass_at() == 0
        # It was not made, and comes again in a fifth of the usual time.
        await sweeping.cloud.azure.set_faults()
        await sweeping.until("it is made, and nothing is wrong any more", mended, timedelta(seconds=12))


async def test_whatever_a_pass_dies_of_the_process_lives_and_the_next_one_comes(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(milliseconds=100))
    passes, faults = CountedPasses(sweeping), [KeyError("name"), RuntimeError("odd"), TimeoutError()]

    async def odd() -> SweepResult:
        if faults:
            raise faults.pop()
        return await passes()

    async def made() -> bool:
        return passes.made > 0

    async with running(sweeping, odd) as task:
        await sweeping.until("one is made in the end", made)
        assert not task.done()


async def test_of_two_processes_one_sweeps(sweeping: AzureSweepFixture) -> None:
    sweeping.sweeps(every=timedelta(milliseconds=50))
    first, second = CountedPasses(sweeping), CountedPasses(sweeping)

    async def several() -> bool:
        return max(first.made, second.made) >= 4

    async with running(sweeping, first, "one"), running(sweeping, second, "two"):
        await sweeping.until("some are made", several)
        assert min(first.begun, second.begun) == 0


async def test_who_loses_the_lease_gives_up_the_pass_that_he_is_at(sweeping: AzureSweepFixture, home: str) -> None:
    sweeping.change("watch", lease=timedelta(seconds=3))
    passes = CountedPasses(sweeping)
    passes.go.clear()

    async def begun() -> bool:
        return passes.begun == 1

    async def cancelled() -> bool:
        return passes.cancelled == 1

    async with running(sweeping, passes):
        await sweeping.until("it is at it", begun)
        # Nobody answers when it would renew.
        sweeping.cloud.proxy.refuse(500, lambda _method, path: "/leases/" in path)
        await sweeping.until("it has given up", cancelled)
        assert passes.made == 0
        sweeping.cloud.proxy.pass_on()
        passes.go.set()

        async def again() -> bool:
            return passes.made >= 1

        await sweeping.until("it is made when the Lease is had again", again)
    assert lease(sweeping, home) is not None


async def test_a_cluster_that_is_not_reached_yet_is_waited_for(
    sweeping: AzureSweepFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.sweeps.sweeper.LOOK", timedelta(milliseconds=20))
    clusters: dict[str, Any] = {}
    places = build_source_clusters(sweeping.settings, clusters, sweeping.installation)
    assert no_places(sweeping.settings).of(SOURCE) is None
    passes = CountedPasses(sweeping)
    task = asyncio.create_task(made_of(sweeping, places, passes, "one").run())

    async def made() -> bool:
        return passes.made == 1

    async def none() -> bool:
        return passes.begun == 0

    try:
        await sweeping.stays("nothing is begun", none, timedelta(milliseconds=100))
        clusters["here"] = sweeping.cluster
        await sweeping.until("a pass is made", made)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await places.aclose()
