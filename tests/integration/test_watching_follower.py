"""Following a source through everything that ends a watch: breaks, silence, 410s, restarts, a Lease that is lost.
What happened meanwhile is published once, and nothing before it is ever skipped."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.kubernetes import connect
from standins.controlplane import ControlPlane
from standins.kubernetes_api import EmbeddedApi
from tests.api_servers import each_kind
from tests.integration.cutting_proxy import CuttingProxy
from tests.integration.watched_source import QUICK, WatchedSource, watched_source
from tests.kube import Crd, Kube
from tests.redis_servers import TestServer

Server = ControlPlane | EmbeddedApi


class WatchedOnOwnServer(WatchedSource):
    """On an API server of the test's own, which it may restart."""

    server: Server


@pytest.fixture(params=each_kind())
async def own(
    request: pytest.FixtureRequest, embedded_server: TestServer, tmp_path: Path
) -> AsyncIterator[WatchedOnOwnServer]:
    with ExitStack() as stack:
        server: Server = ControlPlane(controllers=False) if request.param == "real" else EmbeddedApi()
        stack.enter_context(server)
        kube, crd = Kube(server.url, server.token, server.ca), Crd(group="knell.test", plural="widgets")
        kube.install(crd)
        kube.create("/api/v1/namespaces", {"metadata": {"name": "here"}})
        redis = embedded_server.settings()
        async with watched_source(server, kube, redis, tmp_path, crd, "here", WatchedOnOwnServer) as made:
            assert isinstance(made, WatchedOnOwnServer)
            made.server = server
            yield made


@pytest.mark.parametrize("mode", ["finalizer", "observe"])
async def test_a_restart_of_the_server_during_a_burst_loses_and_doubles_nothing(
    own: WatchedOnOwnServer, mode: str
) -> None:
    names = [f"w{number}" for number in range(60)]
    running = await own.start(mode=mode)
    for name in names:
        own.create(name)
    await own.until("all are known", lambda: running.source.counters.owned == 60)
    if mode == "finalizer":
        await own.until("all are marked", lambda: running.source.counters.marked >= 60)
    for name in names[:30]:
        own.delete(name)
    await own.server.revive_apiserver()
    for name in names[30:]:
        own.delete(name)
    assert set(await own.until_published(*names)) == set(names)
    await own.until("it has recovered", lambda: running.source.problem == "")
    assert {view.round for view in (await own.deletions()).values()} == {1}
    await own.until("all are counted", lambda: running.source.counters.published == 60)


@pytest.mark.parametrize("mode", ["finalizer", "observe"])
async def test_a_410_leads_to_a_list_that_finds_what_vanished(
    own: WatchedOnOwnServer, tmp_path: Path, mode: str
) -> None:
    names = [f"w{number}" for number in range(10)]
    for name in names:
        own.create(name)
    async with (
        CuttingProxy(own.server.url) as gate,
        await connect("gated", gate.settings(own.server, tmp_path)) as gated,
    ):
        running = await own.start(mode=mode, cluster=gated)
        if mode == "finalizer":
            await own.until("all are marked", lambda: all(own.marked(name) for name in names))
        await gate.shut()
        # Nobody sees this, and it is forgotten by the server before anyone asks.
        for name in names[:4]:
            own.delete(name)
        own.server.compact()
        if isinstance(own.server, ControlPlane):
            await own.server.revive_apiserver()
        gate.open()
        assert set(await own.until_published(*names[:4])) == set(names[:4])
        # What vanished is published while the list is made, which counts when it is over.
        await own.until("it is listed again", lambda: running.source.counters.relists >= 2)
        await own.until("it has recovered", lambda: running.source.problem == "")
        assert running.source.counters.relists == 2
        await running.stop()


async def test_a_watch_that_expires_while_it_runs_leads_to_a_new_list(own: WatchedOnOwnServer) -> None:
    running = await own.start()
    own.create("one")
    await own.until("it is marked", lambda: own.marked("one"))
    relists = running.source.counters.relists
    if isinstance(own.server, EmbeddedApi):
        own.server.compact(end_watches=True)
        await own.until("it lists again", lambda: running.source.counters.relists > relists)
    else:
        own.server.compact()
        await own.server.revive_apiserver()
    own.delete("one")
    assert set(await own.until_published("one")) == {"one"}
    own.create("two")
    await own.until("it goes on", lambda: own.marked("two"))


async def test_a_list_that_expires_in_the_middle_starts_over(embedded_server: TestServer, tmp_path: Path) -> None:
    with EmbeddedApi() as server:
        kube, crd = Kube(server.url, server.token, server.ca), Crd(group="knell.test", plural="widgets")
        kube.install(crd)
        kube.create("/api/v1/namespaces", {"metadata": {"name": "here"}})
        async with watched_source(server, kube, embedded_server.settings(), tmp_path, crd, "here") as made:
            for number in range(8):
                made.create(f"w{number}", {"number": number})
            first = await made.start(mode="observe")
            await first.stop()
            made.delete("w7")
            seen: list[bytes] = []

            def recognise(raw: bytes) -> str:
                if not seen:
                    # In the middle of the first page: the next one is asked for in vain.
                    made.create("w8")
                    server.compact()
                seen.append(raw)
                return ""

            running = await made.start(mode="observe", recognise=recognise)
            assert set(await made.until_published("w7")) == {"w7"}
            assert len(seen) > 8
            assert running.source.counters.relists == 1
            lives = {name for name, what in (await made.remembered()).items() if what == "lives"}
            assert lives == {f"w{number}" for number in (0, 1, 2, 3, 4, 5, 6, 8)}


async def test_an_unreadable_object_is_counted_and_never_counts_as_gone(
    embedded_server: TestServer, tmp_path: Path
) -> None:
    with EmbeddedApi() as server:
        kube, crd = Kube(server.url, server.token, server.ca), Crd(group="knell.test", plural="widgets")
        kube.install(crd)
        kube.create("/api/v1/namespaces", {"metadata": {"name": "here"}})
        async with watched_source(server, kube, embedded_server.settings(), tmp_path, crd, "here") as made:
            made.create("spoiled", labels={"spoil": "yes"})
            made.create("sound")
            first = await made.start(mode="observe")
            await first.stop()
            async with (
                CuttingProxy(server.url, spoil=(b'"spoil":"yes"', b'"spoil": 1234')) as gate,
                await connect("spoiling", gate.settings(server, tmp_path)) as spoiling,
            ):
                running = await made.start(mode="observe", cluster=spoiling)
                # In the list, and when it is asked for because it is missing there.
                assert running.source.counters.unreadable == 2
                made.create("late", labels={"spoil": "yes"})
                await made.until("it is counted", lambda: running.source.counters.unreadable == 3)
                made.delete("late")
                await made.until("it is counted again", lambda: running.source.counters.unreadable == 4)
                made.delete("sound")
                assert set(await made.until_published("sound")) == {"sound"}
                assert await made.remembered() == {"spoiled": "lives", "sound": "gone"}
                assert running.source.problem == ""
                await running.stop()


async def test_a_silent_watch_is_replaced_and_misses_nothing(watched: WatchedSource) -> None:
    quiet = msgspec.structs.replace(QUICK, silence=timedelta(milliseconds=150))
    running = await watched.start(watch=quiet)
    await watched.until("it was replaced often", lambda: running.source.counters.resumed >= 8)
    assert running.source.counters.relists == 1
    assert running.source.problem == ""
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    watched.delete("one")
    assert set(await watched.until_published("one")) == {"one"}


async def test_everything_is_listed_again_from_time_to_time(watched: WatchedSource) -> None:
    often = msgspec.structs.replace(QUICK, relist=timedelta(milliseconds=100))
    running = await watched.start(watch=often)
    await watched.until("it was listed again", lambda: running.source.counters.relists >= 3)
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))


async def test_the_resume_point_moves_only_when_everything_before_it_is_published(watched: WatchedSource) -> None:
    running = await watched.start()
    watched.create("one")
    await watched.until("it is marked", lambda: watched.marked("one"))
    field = f"resource_version@{watched.namespace}"

    async def up_to_date() -> bool:
        return int((await watched.facts())[field]) >= int(watched.get("one")["metadata"]["resourceVersion"])

    await watched.until("the point has come up", up_to_date)
    before = (await watched.facts())[field]
    running.holding = False
    watched.delete("one")

    async def unchanged() -> bool:
        return (await watched.facts())[field] == before and await watched.deletions() == {}

    await watched.stays("nothing is published and the point stands", unchanged)
    assert running.source.problem == ""
    running.holding = True
    await watched.until_published("one")
    await watched.until("the point moves on", up_to_date)


async def test_without_the_lease_no_finalizer_is_added(watched: WatchedSource) -> None:
    running = await watched.start()
    running.holding = False
    watched.create("one")
    await watched.stays("it is not marked", lambda: not watched.marked("one"))
    running.holding = True
    await watched.until("it is marked", lambda: watched.marked("one"))


async def test_a_list_may_be_asked_for(watched: WatchedSource) -> None:
    running = await watched.start()
    await watched.until_listed_again(running)
    assert running.source.counters.relists == 2
