"""Watch side with real Leases on an API server, whose cluster a test can set back as a restored backup does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from service.contract import VERSION
from service.contract.names import WITNESS, share_lease
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.lease_counters import LeaseCounterStore, StoredCounter
from service.engine.restore_detection import RestoreDetector
from service.engine.views.deletions import list_deletions
from service.kubernetes import KubernetesClient, connect
from service.settings import ClusterSettings, FeedbackSettings, RedisSettings, Settings, SourceSettings, WatchSettings
from service.watching.watcher import Watcher
from tests.api_servers import ApiServer
from tests.engine import waiting
from tests.integration.command_line import CommandResult, environment, invoke
from tests.kube import Crd, Kube

SOURCE = "widgets"
CLUSTER = "here"
LEASE = share_lease(SOURCE, 0)


class RestorableCluster:
    """One observed source. `home` is the namespace of its Leases and of its objects."""

    def __init__(
        self, kube: Kube, settings: Settings, crd: Crd, home: str, cluster: KubernetesClient, uid: str
    ) -> None:
        self.kube, self.settings, self.crd, self.home = kube, settings, crd, home
        self.cluster, self.uid = cluster, uid
        self.installation = Installation(settings)
        self.inventory = Inventory(self.installation, SOURCE)
        self.witnesses = LeaseCounterStore(self.installation)
        self._running: list[tuple[Watcher, asyncio.Task[None], Installation]] = []

    @property
    def witness(self) -> RestoreDetector:
        return RestoreDetector(self.installation, self.cluster, self.uid, self.home, (LEASE,))

    # ---- the watch side

    async def watch(self) -> Watcher:
        """One that has listed everything, or waits for the Lease of another."""
        installation = Installation(self.settings)
        watcher = Watcher(self.settings, installation)
        self._running.append((watcher, asyncio.create_task(watcher.run()), installation))
        first = len(self._running) == 1
        await self.until("it watches", lambda: not first or watcher.share_leases[0].counters.relists > 0)
        return watcher

    async def stop(self) -> None:
        while self._running:
            watcher, task, installation = self._running.pop()
            watcher.stop()
            await task
            await installation.aclose()

    async def kill(self) -> None:
        """Without a word, as a process ends that is killed."""
        while self._running:
            _, task, installation = self._running.pop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await installation.aclose()

    # ---- the cluster

    def create(self, name: str) -> str:
        body = {**self.crd.body(name), "spec": {}}
        return str(self.kube.create(self.crd.path(self.home), body)["metadata"]["uid"])

    def delete(self, name: str) -> None:
        self.kube.delete(self.crd.path(self.home, name))

    @property
    def lease_path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases/{LEASE}"

    def lease(self) -> Any:
        return self.kube.get(self.lease_path)

    def counter(self) -> int:
        found = self.lease()
        return int(found["metadata"].get("annotations", {}).get(WITNESS, 0)) if found is not None else 0

    def set_back(self, value: int = 1) -> None:
        """The Lease as a backup has it; whoever holds it finds it changed."""
        self.kube.patch(self.lease_path, {"metadata": {"annotations": {WITNESS: str(value)}}})

    # ---- Redis

    async def noted(self) -> StoredCounter | None:
        name = f"{self.home}/{LEASE}"
        return (await self.witnesses.read(self.uid, [name])).counters.get(name)

    async def value(self) -> int:
        found = await self.noted()
        return found.value if found is not None else 0

    async def restored(self) -> str:
        """Why the cluster counts as restored; empty where it does not."""
        found = (await self.witnesses.restored_clusters()).get(self.uid)
        return found.why if found is not None else ""

    async def remembered(self) -> dict[str, str]:
        """By name: `lives`, `gone`, or why it is held."""
        found: dict[str, str] = {}
        async for part in self.inventory.scan():
            for _, record in part:
                assert record is not None
                found[record.name] = record.held or ("gone" if record.gone else "lives")
        return found

    async def published(self) -> set[str]:
        return {view.name for view in (await list_deletions(self.installation, limit=1000)).deletions}

    # ---- commands

    async def knell(self, folder: Path, *words: str, answer: str | None = None) -> CommandResult:
        way = {"kubeconfig": str(self.settings.clusters[CLUSTER].kubeconfig), "context": "local"}
        source = {"resource": self.crd.resource, "collector": "none", "mode": "observe", "namespaces": [self.home]}
        document = {"clusters": {CLUSTER: way}, "sources": {SOURCE: source}, "watch": {"namespace": self.home}}
        (folder / "knell.yaml").write_bytes(msgspec.yaml.encode(document))
        variables = environment(self.settings.redis)
        return await asyncio.to_thread(
            invoke, variables, *words, "--config", str(folder / "knell.yaml"), answer=answer
        )  # fmt: skip

    # ---- waiting

    async def until(self, what: str, look: Callable[[], Any], within: timedelta = waiting.PATIENCE) -> Any:
        async def looked() -> Any:
            answer = look()
            return await answer if asyncio.iscoroutine(answer) else answer

        return await waiting.until(what, looked, within)

    async def until_counted(self, above: int = 0) -> int:
        """The counter in Redis is above that."""

        async def value() -> int:
            found = await self.value()
            return found if found > above else 0

        return int(await self.until(f"the counter is above {above}", value))

    async def until_remembered(self, **states: str) -> None:
        """Each of these names has a record that says so, in part."""

        async def look() -> bool:
            found = await self.remembered()
            return all(words in found.get(name, "") for name, words in states.items())

        await self.until(f"{states} is remembered", look)


@asynccontextmanager
async def restorable_cluster(
    server: ApiServer, kube: Kube, redis: RedisSettings, folder: Path, crd: Crd, home: str
) -> AsyncIterator[RestorableCluster]:
    way = ClusterSettings(kubeconfig=server.kubeconfig(folder / "witnessed.kubeconfig"), context="local")
    declared = SourceSettings(
        resource=crd.resource, collector="none", mode="observe", namespaces=(home,), adopt_existing=True
    )
    settings = Settings(
        redis=redis, clusters={CLUSTER: way}, sources={SOURCE: declared},
        feedback=FeedbackSettings(events=False, conditions=False),
        watch=WatchSettings(namespace=home, retry=timedelta(milliseconds=300), lease=timedelta(seconds=6)),
    )  # fmt: skip
    async with await connect(CLUSTER, way) as cluster:
        made = RestorableCluster(kube, settings, crd, home, cluster, await cluster.identity())
        try:
            yield made
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await made.stop()
            await made.installation.aclose()


def made_lease(kube: Kube, namespace: str, name: str, value: int) -> str:
    """Makes it, or sets its counter; answers its uid."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    metadata: dict[str, Any] = {"name": name, "annotations": {WITNESS: str(value)}}
    if kube.get(f"{path}/{name}") is None:
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        return str(kube.create(path, body)["metadata"]["uid"])
    return str(kube.patch(f"{path}/{name}", {"metadata": metadata})["metadata"]["uid"])


async def noted(installation: Installation, cluster: str, name: str, uid: str, value: int) -> None:
    await LeaseCounterStore(installation).replace(cluster, name, StoredCounter(v=VERSION, value=value, uid=uid))
