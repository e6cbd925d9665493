"""Cluster identity: a cluster that is exchanged under a running process is no longer watched at once.
One whose kubeconfig is in a Secret of another cluster is watched like any other."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.settings import ClusterSettings, RedisSettings, Settings, SourceSettings, WatchSettings
from service.watching.cluster_identity import ClusterIdentities, WrongCluster
from service.watching.watcher import Watcher
from standins.kubernetes_api import EmbeddedApi
from tests.engine import waiting
from tests.kube import Crd, Kube
from tests.redis_servers import TestServer
from tests.switching_relay import SwitchingRelay

CRD = Crd(group="knell.test", plural="widgets")
SOURCE = SourceSettings(resource=CRD.resource, collector="none")


@dataclass(frozen=True, slots=True)
class WidgetCluster:
    """A cluster of its own with widgets in it."""

    api: EmbeddedApi
    kube: Kube

    @property
    def port(self) -> int:
        return int(self.api.url.rpartition(":")[2])

    def create(self, *names: str) -> None:
        for name in names:
            self.kube.create(CRD.path("default"), CRD.body(name))

    def marked(self, name: str) -> bool:
        found = self.kube.get(CRD.path("default", name))
        return found is not None and FINALIZER in found["metadata"].get("finalizers", [])

    @property
    def leases(self) -> list[object]:
        found = self.kube.get("/apis/coordination.k8s.io/v1/namespaces/default/leases")
        return list(found["items"]) if found else []


@pytest.fixture
def places() -> Iterator[tuple[WidgetCluster, WidgetCluster]]:
    with EmbeddedApi() as first, EmbeddedApi() as second:
        # Whoever may enter the one may enter the other: nothing but its identity tells them apart.
        second.add_token(first.token, "admin", ("system:masters",))
        made = [WidgetCluster(api, Kube(api.url, api.token, None)) for api in (first, second)]
        for place in made:
            place.kube.install(CRD)
        yield made[0], made[1]


@asynccontextmanager
async def watching(
    redis: RedisSettings, clusters: dict[str, ClusterSettings], *sources: SourceSettings
) -> AsyncIterator[tuple[Watcher, Installation]]:
    settings = Settings(
        redis=redis,
        clusters=clusters,
        sources=dict(zip(("widgets", "others"), sources or [SOURCE], strict=False)),
        watch=WatchSettings(namespace="default", retry=timedelta(seconds=1)),
    )
    installation = Installation(settings)
    watcher = Watcher(settings, installation)
    running = asyncio.ensure_future(watcher.run())
    try:
        yield watcher, installation
    finally:
        watcher.stop()
        await running
        await installation.aclose()


async def until(what: str, holds: Callable[[], bool]) -> None:
    await waiting.until(what, lambda: asyncio.to_thread(holds))


@pytest.mark.parametrize("mode", ["finalizer", "observe"])
async def test_a_cluster_that_is_exchanged_under_a_running_process_is_left_at_once(
    places: tuple[WidgetCluster, WidgetCluster], embedded_server: TestServer, tmp_path: Path, mode: str
) -> None:
    ours, other = places
    source = SourceSettings(resource=CRD.resource, collector="none", mode=mode, adopt_existing=True)  # type: ignore[arg-type]
    ours.create("a", "b")
    other.create("a", "stranger", *(f"s{number}" for number in range(20)))
    # Of what the watch saw last it knows nothing any more: everything is listed at once, in a later version.
    other.api.compact()
    async with SwitchingRelay(ours.port) as relay:
        config = ours.api.kubeconfig(tmp_path / "config")
        config.write_text(config.read_text().replace(str(ours.port), str(relay.port)))
        clusters = {"here": ClusterSettings(kubeconfig=config)}
        async with watching(embedded_server.settings(), clusters, source) as (watcher, installation):
            (cluster_watch,), (share_lease,) = watcher.cluster_watches, watcher.share_leases
            await until("it has listed", lambda: share_lease.counters.relists == 1)
            known = await Inventory(installation, "widgets").size()
            relay.switch(other.port)
            await until("it is refused", lambda: cluster_watch.refused)
            assert "uid" in cluster_watch.problem
            assert not share_lease.held
            # Nothing was concluded from what is missing there, and nothing was left there.
            assert share_lease.counters.published == 0
            assert await Inventory(installation, "widgets").size() == known
            assert not other.marked("a")
            assert not other.marked("stranger")
            assert other.leases == []
            relay.switch(ours.port)
            await until("it goes on", lambda: cluster_watch.up)


async def test_a_kubeconfig_may_be_kept_in_a_secret_of_another_cluster(
    places: tuple[WidgetCluster, WidgetCluster], embedded_server: TestServer, tmp_path: Path
) -> None:
    here, there = places
    text = there.api.kubeconfig(tmp_path / "there").read_bytes()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "remote"},
        "data": {"kubeconfig": base64.b64encode(text).decode()},
    }
    here.kube.create("/api/v1/namespaces/default/secrets", body)
    clusters = {
        "here": ClusterSettings(kubeconfig=here.api.kubeconfig(tmp_path / "here")),
        "there": ClusterSettings(via="here", secret="default/remote/kubeconfig"),
    }
    source = SourceSettings(resource=CRD.resource, collector="none", cluster="there")
    async with watching(embedded_server.settings(), clusters, source) as (watcher, _):
        await until("it watches", lambda: watcher.share_leases[0].held)
        there.create("a")
        here.create("a")
        await until("it is marked there", lambda: there.marked("a"))
        assert not here.marked("a")
        assert here.leases == []


# ---- two names for one cluster


async def test_a_name_with_a_uid_in_the_settings_never_gives_way_to_one_that_reported_it_first(
    places: tuple[WidgetCluster, WidgetCluster], embedded_server: TestServer, tmp_path: Path
) -> None:
    ours, other = places
    redis, uid = embedded_server.settings(), uid_of(ours)
    astray = ClusterSettings(kubeconfig=ours.api.kubeconfig(tmp_path / "astray"))
    sources = [msgspec.structs.replace(SOURCE, cluster=name) for name in ("first", "pinned")]
    async with watching(redis, {"first": astray}, sources[0]) as (watcher, _):
        await until("it is remembered", lambda: watcher.cluster_watches[0].up)
    clusters = {"first": astray, "pinned": msgspec.structs.replace(astray, uid=uid)}
    async with watching(redis, clusters, *sources) as (watcher, installation):
        first, pinned = watcher.cluster_watches
        await until("the pinned one is watched", lambda: pinned.share_leases[0].held)
        await until("the first is refused", lambda: first.refused)
        assert "clusters.pinned.uid" in first.problem
        assert pinned.up
        assert not first.share_leases[0].held
        assert await ClusterIdentities(installation.settings, installation).remembered() == {"pinned": uid}
    # Once its kubeconfig is mended, nothing has to be forgotten.
    clusters["first"] = ClusterSettings(kubeconfig=other.api.kubeconfig(tmp_path / "mended"))
    async with watching(redis, clusters, *sources) as (watcher, _):
        await until("both are watched", lambda: all(share_lease.held for share_lease in watcher.share_leases))


def named(redis: RedisSettings, *names: str, **pinned: str) -> Settings:
    clusters = {name: ClusterSettings(in_cluster=True, uid=pinned.get(name)) for name in names}
    return Settings(redis=redis, clusters=clusters)


@pytest.fixture
async def installation(embedded_server: TestServer) -> AsyncIterator[Installation]:
    made = Installation(Settings(redis=embedded_server.settings()))
    yield made
    await made.aclose()


async def test_a_name_that_is_remembered_never_gives_way_to_one_that_stands_before_it(
    installation: Installation,
) -> None:
    identities = ClusterIdentities(named(installation.settings.redis, "new", "old"), installation)
    await identities.confirm("old", "u1")
    with pytest.raises(WrongCluster, match="old was there first"):
        await identities.confirm("new", "u1")
    await identities.confirm("old", "u1")
    assert await identities.remembered() == {"old": "u1"}
    # The right cluster is taken for it once it is found.
    await identities.confirm("new", "u2")
    assert await identities.remembered() == {"old": "u1", "new": "u2"}


async def test_what_the_settings_refuse_is_not_remembered(installation: Installation) -> None:
    redis = installation.settings.redis
    with pytest.raises(WrongCluster, match=r"clusters\.two\.uid says that u1 is two"):
        await ClusterIdentities(named(redis, "one", "two", two="u1"), installation).confirm("one", "u1")
    twice = ClusterIdentities(named(redis, "one", "two", one="u1", two="u1"), installation)
    with pytest.raises(WrongCluster, match="clusters one and two are the same cluster"):
        await twice.confirm("two", "u1")
    assert await twice.remembered() == {}
    await twice.confirm("one", "u1")


async def test_of_many_names_that_report_one_uid_at_the_same_moment_one_is_remembered(
    installation: Installation,
) -> None:
    names = [f"c{number}" for number in range(8)]
    identities = ClusterIdentities(named(installation.settings.redis, *names), installation)
    answers = await asyncio.gather(*(identities.confirm(one, "u1") for one in names), return_exceptions=True)
    (first,) = (name for name, answer in zip(names, answers, strict=True) if answer is None)
    assert await identities.remembered() == {first: "u1"}


async def test_a_cluster_name_that_the_settings_no_longer_have_blocks_no_other(installation: Installation) -> None:
    redis = installation.settings.redis
    await ClusterIdentities(named(redis, "before"), installation).confirm("before", "u1")
    await ClusterIdentities(named(redis, "after"), installation).confirm("after", "u1")


def uid_of(place: WidgetCluster) -> str:
    found = place.kube.get("/api/v1/namespaces/kube-system")
    assert found is not None
    return str(found["metadata"]["uid"])
