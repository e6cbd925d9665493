"""Clusters by their identity: one that is exchanged under a running process is left at once.
One whose kubeconfig is kept in a Secret of another is watched like any other."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from service.contract.names import FINALIZER
from service.local.api import EmbeddedApi
from service.settings import ClusterSettings, RedisSettings, Settings, SourceSettings, WatchSettings
from service.stream.installation import Installation
from service.stream.inventory import Inventory
from service.watching.watcher import Watcher
from tests.engine import waiting
from tests.kube import Crd, Kube
from tests.servers import TestServer
from tests.switching_relay import SwitchingRelay

CRD = Crd(group="knell.test", plural="widgets")
SOURCE = SourceSettings(resource=CRD.resource, collector="none")


@dataclass(frozen=True, slots=True)
class Place:
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
def places() -> Iterator[tuple[Place, Place]]:
    with EmbeddedApi() as first, EmbeddedApi() as second:
        # Whoever may enter the one may enter the other: nothing but its identity tells them apart.
        second.add_token(first.token, "admin", ("system:masters",))
        made = [Place(api, Kube(api.url, api.token, None)) for api in (first, second)]
        for place in made:
            place.kube.install(CRD)
        yield made[0], made[1]


@asynccontextmanager
async def watching(
    redis: RedisSettings, clusters: dict[str, ClusterSettings], source: SourceSettings = SOURCE
) -> AsyncIterator[tuple[Watcher, Installation]]:
    settings = Settings(
        redis=redis,
        clusters=clusters,
        sources={"widgets": source},
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
    places: tuple[Place, Place], embedded_server: TestServer, tmp_path: Path, mode: str
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
            (site,), (post,) = watcher.sites, watcher.posts
            await until("it has listed", lambda: post.tally.relists == 1)
            known = await Inventory(installation, "widgets").size()
            relay.switch(other.port)
            await until("it is refused", lambda: site.refused)
            assert "uid" in site.trouble
            assert not post.held
            # Nothing was concluded from what is missing there, and nothing was left there.
            assert post.tally.published == 0
            assert await Inventory(installation, "widgets").size() == known
            assert not other.marked("a")
            assert not other.marked("stranger")
            assert other.leases == []
            relay.switch(ours.port)
            await until("it goes on", lambda: site.up)


async def test_a_kubeconfig_may_be_kept_in_a_secret_of_another_cluster(
    places: tuple[Place, Place], embedded_server: TestServer, tmp_path: Path
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
        await until("it watches", lambda: watcher.posts[0].held)
        there.create("a")
        here.create("a")
        await until("it is marked there", lambda: there.marked("a"))
        assert not here.marked("a")
        assert here.leases == []
