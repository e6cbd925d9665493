"""Fixture for the watch side: one kind of object on an API server, an installation on a real Valkey, and one source.
Tests arrange and check with plain requests; the effects of the watch side are read from Redis and from the objects."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.engine.epoch import EpochTracker
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.views.deletions import DeletionView, list_deletions
from service.kubernetes import KubeObject, KubernetesClient, ListPage, RecentObjects, ServedResource, connect
from service.settings import (
    ClusterSettings,
    FeedbackSettings,
    PolicySettings,
    RedisSettings,
    Settings,
    SourceSettings,
    WatchSettings,
)
from service.watching.assignment import Assignment
from service.watching.source_watch import SourceWatch
from tests.api_servers import ApiServer, TestApi
from tests.engine.waiting import stays, until
from tests.kube import Crd, Kube, KubeRefused, wait_until
from tests.redis_servers import TestServer

SOURCE = "widgets"
OTHER = "someone.else/holds"
QUICK = WatchSettings(retry=timedelta(milliseconds=300), page=3)


def spec_of(raw: bytes) -> str:
    """A collector that recognises an object's resources by its spec."""
    return msgspec.json.encode(msgspec.json.decode(raw).get("spec", {})).decode()


@dataclass(slots=True)
class RunningWatch:
    """A run that is under way. `holding` is what its Lease would say."""

    source: SourceWatch
    task: "asyncio.Task[None]" = field(init=False)
    holding: bool = True

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


class InterceptedClient(KubernetesClient):
    """The same connection, with a hand in the game: `meddle` is called with the method and the name right before each
    read (GET) and change (PATCH) of an object of that kind, and with LIST before each list."""

    def __init__(self, cluster: KubernetesClient, crd: Crd, meddle: Callable[[str, str], None]) -> None:
        super().__init__(cluster.name, cluster._calls)
        self._crd, self._meddle = crd, meddle

    async def get(self, served: ServedResource, namespace: str, name: str, **how: Any) -> KubeObject | None:
        await self._called(served, "GET", name)
        return await super().get(served, namespace, name, **how)

    async def patch(self, served: ServedResource, namespace: str, name: str, patch: Any, **how: Any) -> KubeObject:
        await self._called(served, "PATCH", name)
        return await super().patch(served, namespace, name, patch, **how)

    async def pages(
        self, served: ServedResource, namespace: str | None, selector: str = "", limit: int = 500, **how: Any
    ) -> AsyncGenerator[ListPage, None]:
        await self._called(served, "LIST", namespace or "")
        async with contextlib.aclosing(super().pages(served, namespace, selector, limit, **how)) as found:
            async for page in found:
                yield page

    async def _called(self, served: ServedResource, method: str, name: str) -> None:
        if served.resource == self._crd.resource:
            await asyncio.to_thread(self._meddle, method, name)


class WatchedSource:
    def __init__(self, kube: Kube, cluster: KubernetesClient, redis: RedisSettings, crd: Crd, namespace: str) -> None:
        self.kube, self.cluster, self.crd, self.namespace = kube, cluster, crd, namespace
        self.settings = Settings(redis=redis, watch=QUICK, feedback=FeedbackSettings())
        self.installation = Installation(self.settings)
        self.inventory = Inventory(self.installation, SOURCE)
        self._running: list[RunningWatch] = []
        self._installed = [self.installation]

    # ---- the watch side

    async def start(
        self,
        *,
        name: str = SOURCE,
        ready: bool = True,
        share: Callable[[str], bool] = lambda _namespace: True,
        part: str = "",
        enabled_at: int = 0,
        recognise: Callable[[bytes], str] = spec_of,
        cluster: KubernetesClient | None = None,
        watch: WatchSettings | None = None,
        policy: PolicySettings | None = None,
        others: dict[str, SourceSettings] | None = None,
        uid: str = "",
        recent_objects: RecentObjects | None = None,
        **source: Any,
    ) -> RunningWatch:
        """What is given by name besides are settings of the source."""
        given = {"resource": self.crd.resource, "collector": "none", "namespaces": (self.namespace,), **source}
        settings = msgspec.structs.replace(
            self.settings,
            sources={name: SourceSettings(**given), **(others or {})},
            watch=watch or self.settings.watch,
            policy=policy or self.settings.policy,
        )
        installation = Installation(settings)
        self._installed.append(installation)
        cluster = cluster or self.cluster
        running: RunningWatch

        def lease_held() -> bool:
            return running.holding

        running = RunningWatch(
            SourceWatch(
                Assignment(
                    name=name,
                    settings=settings.sources[name],
                    cluster=cluster,
                    cluster_uid=uid or await self.cluster.identity(),
                    installation=installation,
                    recognise=recognise,
                    enabled_at=enabled_at,
                    share=share,
                    lease_held=lease_held,
                    part=part,
                    recent_objects=recent_objects,
                )
            )
        )
        running.task = asyncio.create_task(running.source.run())
        self._running.append(running)
        if ready:
            await self.until("everything is listed", lambda: running.source.ready)
        return running

    async def aclose(self) -> None:
        for running in self._running:
            await running.stop()
        for installation in self._installed:
            await installation.aclose()

    # ---- the cluster

    def create(self, name: str, spec: dict[str, object] | None = None, **metadata: object) -> str:
        """Its uid."""
        body = {**self.crd.body(name, **metadata), "spec": spec or {}}
        return str(self.kube.create(self.crd.path(self.namespace), body)["metadata"]["uid"])

    def get(self, name: str) -> Any:
        return self.kube.get(self.crd.path(self.namespace, name))

    def patch(self, name: str, metadata: dict[str, object]) -> None:
        self.kube.patch(self.crd.path(self.namespace, name), {"metadata": metadata})

    def delete(self, name: str) -> None:
        self.kube.delete(self.crd.path(self.namespace, name))

    def replace_crd(self) -> None:
        """As `kubectl replace --force` does: its objects are deleted, and no user asked for it."""
        self.kube.delete(self.crd.own_path)
        wait_until("the CRD is gone", lambda: self.kube.get(self.crd.own_path) is None)
        self.kube.install(self.crd)

    def finalizers(self, name: str, path: str = "") -> list[str]:
        """None at all where it is gone; `path` leads to an object of another namespace or kind."""
        found = self.kube.get(path) if path else self.get(name)
        return [] if found is None else list(found["metadata"].get("finalizers", []))

    def marked(self, name: str) -> bool:
        return FINALIZER in self.finalizers(name)

    def events(self, reason: str) -> list[Any]:
        found: Any = self.kube.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [one for one in found["items"] if one["reason"] == reason]

    # ---- Redis

    async def deletions(self) -> dict[str, DeletionView]:
        """By name of the object and round, whatever state they are in."""
        found: dict[str, DeletionView] = {}
        for state in (None, "done", "dropped"):
            for view in (await list_deletions(self.installation, state=state, limit=10_000)).deletions:
                found[view.name if view.round == 1 else f"{view.name} {view.round}"] = view
        return found

    async def facts(self) -> dict[str, str]:
        return await self.inventory.state()

    async def remembered(self) -> dict[str, str]:
        """What is remembered, by name: `lives`, `gone`, or why it is held."""
        found: dict[str, str] = {}
        async for part in self.inventory.scan():
            for _, record in part:
                assert record is not None
                found[record.name] = record.held or ("gone" if record.gone else "lives")
        return found

    async def end(self, deletion: str, state: str = "done") -> None:
        """As if workers had brought it so far."""
        shard = self.installation.shard_of(deletion)
        await self.installation.caller.command("HSET", f"{shard.stem}deletion:{deletion}", "state", state)
        if state in ("done", "dropped"):
            await self.installation.caller.command("ZREM", f"{shard.stem}open", deletion)
            await self.installation.caller.command("ZADD", f"{shard.stem}finished", 1, deletion)

    async def empty_redis(self) -> None:
        """Everything of this installation, as if its server had been flushed."""
        client = self.installation.connections.client
        keys = [key async for key in client.scan_iter(match=f"{self.settings.redis.prefix}:*", count=1000)]
        await client.unlink(*keys)

    # ---- waiting

    async def until(self, what: str, look: Callable[[], Any]) -> Any:
        """`look` may answer at once or be awaited."""

        async def looked() -> Any:
            answer = look()
            return await answer if asyncio.iscoroutine(answer) else answer

        return await until(what, looked)

    async def stays(self, what: str, look: Callable[[], Any], during: timedelta = timedelta(milliseconds=600)) -> None:
        async def looked() -> bool:
            answer = look()
            return bool(await answer if asyncio.iscoroutine(answer) else answer)

        await stays(what, looked, during)

    async def until_published(self, *names: str) -> dict[str, DeletionView]:
        async def look() -> dict[str, DeletionView] | None:
            found = await self.deletions()
            return found if set(names) <= found.keys() else None

        found: dict[str, DeletionView] = await self.until(f"{', '.join(names)} are published", look)
        return found

    async def until_listed_again(self, running: RunningWatch) -> None:
        before = running.source.counters.relists
        await Inventory(self.installation, running.source.name).request_relist()
        await self.until("it is listed again", lambda: running.source.counters.relists > before)


@contextlib.asynccontextmanager
async def watched_source(
    server: ApiServer,
    kube: Kube,
    redis: RedisSettings,
    folder: Path,
    crd: Crd,
    namespace: str,
    kind: type[WatchedSource] = WatchedSource,
) -> AsyncIterator[WatchedSource]:
    settings = ClusterSettings(kubeconfig=server.kubeconfig(folder / "watched"), context="local")
    async with await connect("test", settings) as cluster:
        made = kind(kube, cluster, redis, crd, namespace)
        try:
            await EpochTracker(made.installation.shards).check()
            yield made
        finally:
            await made.aclose()


@pytest.fixture
async def watched(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[WatchedSource]:
    """On the API server that `api` is, with a kind of object and a namespace of the test's own."""
    crd, namespace = api.crd(), api.namespace()
    async with watched_source(api.server, api.kube, embedded_server.settings(), tmp_path, crd, namespace) as made:
        yield made
    # The watch side has stopped, so that nothing is marked again. Objects with finalizers would keep their CRD, and the
    # server, which removes only a few at a time, would be late with those of others.
    for item in (api.kube.get(crd.path()) or {"items": []})["items"]:
        path = crd.path(item["metadata"].get("namespace", ""), item["metadata"]["name"])
        with contextlib.suppress(KubeRefused):
            api.kube.patch(path, {"metadata": {"finalizers": []}})
