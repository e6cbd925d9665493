"""Fixture for the worker side of a cluster: a real API server, a real Valkey, the simulated provider, and workers.
A test creates objects through the plain API, publishes events itself, and checks all three afterwards."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from service.contract import Event
from service.contract.names import FINALIZER
from service.engine.inventory import Inventory, InventoryRecord
from service.kubernetes import KubernetesClient, RecentObjects, connect
from service.settings import ClusterSettings, FeedbackSettings, GuardSettings, SourceSettings
from tests.api_servers import TestApi
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.engine.waiting import PATIENCE
from tests.kube import Crd
from tests.recording_proxy import RecordingProxy
from tests.redis_servers import TestServer
from tests.simulated.handler import SimulatedHandler
from tests.simulated.provider_state import Seed, SeededResource
from tests.simulated.server import SimulatedProvider
from workers.handlers.collector import Collector
from workers.judging.registry_builder import build_registry
from workers.runtime.worker import Worker

SOURCE = "widgets"
ACCOUNT = "acct"
LANE = f"simulated/{ACCOUNT}/here/delete"


class JudgedSource(EngineUnderTest):
    """One source of one kind, in a namespace of its own. Workers go to the API server through `proxy`, the test itself
    goes straight to it."""

    api: TestApi
    proxy: RecordingProxy
    crd: Crd
    namespace: str
    cluster: KubernetesClient
    provider: SimulatedProvider
    simulated: SimulatedHandler
    identity: str

    # ---- settings

    def source(self, **changed: Any) -> None:
        """The source as it is declared from now on."""
        declared = msgspec.structs.replace(self.settings.sources[SOURCE], **changed)
        self.settings = msgspec.structs.replace(self.settings, sources={SOURCE: declared})

    # ---- the cluster

    def make(self, name: str, targets: int = 1, *, owner: str = "tag", marked: bool = True, **metadata: Any) -> Any:
        """An object that names so many targets, which are there; its resources are NAME-0, NAME-1..."""
        names = [f"{name}-{number}" for number in range(targets)]
        self.provider.state.add(
            Seed(resources=tuple(SeededResource(account=ACCOUNT, id=one, owner=owner) for one in names))
        )
        finalizers = [FINALIZER] if marked else []
        body = self.crd.body(name, **{"finalizers": finalizers, **metadata})
        body["spec"] = {"owner": owner, "targets": [{"account": ACCOUNT, "id": one} for one in names]}
        return self.api.kube.create(self.crd.path(self.namespace), body)

    def delete(self, name: str) -> Any:
        self.api.kube.delete(self.path(name))
        return self.read(name)

    def read(self, name: str) -> Any:
        return self.api.kube.get(self.path(name))

    def path(self, name: str) -> str:
        return self.crd.path(self.namespace, name)

    def annotate(self, name: str, **annotations: str | None) -> None:
        self.api.kube.patch(self.path(name), {"metadata": {"annotations": annotations}})

    def annotate_namespace(self, **annotations: str | None) -> None:
        self.api.kube.patch(f"/api/v1/namespaces/{self.namespace}", {"metadata": {"annotations": annotations}})

    def unmark(self, name: str, keep: tuple[str, ...] = ()) -> None:
        """Another hand takes our finalizer off."""
        self.api.kube.patch(self.path(name), {"metadata": {"finalizers": list(keep)}})

    # ---- the stream

    def event(self, found: Mapping[str, Any], **changed: Any) -> Event:
        """As the watch side would tell of it."""
        meta = found["metadata"]
        named = {
            "cluster": self.identity, "resource": self.crd.resource, "uid": meta["uid"], "name": meta["name"],
            "namespace": meta.get("namespace", ""), "source": SOURCE,
        } | changed  # fmt: skip
        return Event(**named)

    async def going(self, name: str, targets: int = 1, **made: Any) -> Event:
        """An object with our finalizer that is made and deleted, and its event, published."""
        self.make(name, targets, **made)
        one = self.event(self.delete(name))
        await self.publish(one)
        return one

    async def gone(self, name: str, **made: Any) -> Event:
        """Made and deleted; its event is published by whoever watches."""
        self.make(name, **made)
        one = self.event(self.delete(name))

        async def known() -> bool:
            return await self.state(one) is not None

        await self.until(f"{name} is published", known)
        return one

    async def remember(self, found: Mapping[str, Any], **changed: Any) -> None:
        """As the watch side would keep an observed object that it found gone."""
        meta = found["metadata"]
        record = InventoryRecord(
            v=1, name=meta["name"], namespace=meta.get("namespace", ""), labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}), data=msgspec.json.encode(found["spec"]).decode(), gone=1,
        )  # fmt: skip
        await self.inventory.save({meta["uid"]: msgspec.structs.replace(record, **changed)})

    @property
    def inventory(self) -> Inventory:
        return Inventory(self.installation, SOURCE)

    # ---- workers

    async def work(
        self,
        clusters: Mapping[str, KubernetesClient] | None = None,
        *,
        collector: Collector | None = None,
        recent_objects: RecentObjects | None = None,
        **worker: Any,
    ) -> RunningWorker:
        """A worker that is composed as `knell work` composes it; `recent_objects` are those of a watch side in the same
        process."""
        name = f"judge-{len(self.running) + 1}"
        own = msgspec.structs.replace(self.settings.worker, name=name, **worker)
        settings = msgspec.structs.replace(self.settings, worker=own)
        installation = self.install(settings)
        reached = {"local": self.cluster} if clusters is None else clusters
        registry = build_registry(
            settings, reached, installation, handlers=[self.simulated], collectors=[collector or self.simulated],
            recent_objects=recent_objects,
        )  # fmt: skip
        made = Worker(installation, registry)
        running = RunningWorker(made, installation, asyncio.create_task(made.run(), name=name), Counter(), Counter())
        self.running.append(running)

        async def ready() -> bool:
            return made.ready

        await self.until(f"{name} is ready", ready)
        return running

    def have_patience(self) -> None:
        """By itself nothing that is held or refused is looked at again while a test waits."""
        long = timedelta(minutes=10)
        self.change("retry", base=long, cap=long, blocked_base=long, refused_recheck=long)

    async def stop_lanes(self) -> None:
        await self.installation.shards[0].pause("*", stop=True, who="test")

    async def free_lanes(self) -> None:
        await self.installation.shards[0].pause("*", stop=False, who="test")

    # ---- looking

    async def until_held(self, one: Event, *words: str) -> str:
        """Why the event is held, once it is."""
        return await self._until_shown(one, "held", *words)

    async def until_waiting(self, one: Event, *words: str) -> str:
        """For what it waits by itself, once it does."""
        return await self._until_shown(one, "waiting", *words)

    async def _until_shown(self, one: Event, state: str, *words: str) -> str:
        async def why() -> str:
            record = await self.deletion(one)
            reason = record.get("held", "") if record.get("state") == state else ""
            return reason if all(word in reason for word in words) else ""

        return await self.until(f"{one.deletion} is {state} for {words}", why)

    async def until_state(self, one: Event, state: str, within: timedelta = PATIENCE) -> None:
        async def reached() -> bool:
            return await self.state(one) == state

        await self.until(f"{one.deletion} is {state}", reached, within)

    async def until_refused(self, one: Event, *words: str) -> str:
        """Why the first job of a planned deletion is held, once it is."""

        async def why() -> str:
            if "plan" not in await self.deletion(one):
                return ""
            job = (await self.jobs_of(one))[0]
            found = await self.job(job)
            detail = found.get("detail", "")
            held = found.get("held") == "1" and f"job:{job}" in await self.members("held")
            return detail if held and all(word in detail for word in words) else ""

        return await self.until(f"the jobs of {one.deletion} are held for {words}", why)

    def there(self, name: str, number: int = 0) -> bool:
        """Whether a resource of that object is still at the provider."""
        return self.provider.state.find(ACCOUNT, f"{name}-{number}") is not None

    @property
    def deletes(self) -> int:
        """Destructive calls that reached the provider."""
        return sum(self.provider.answered[status] for status in (202, 204))


@asynccontextmanager
async def judged_source(
    api: TestApi, server: TestServer, folder: Path, *, own_crd: Crd | None = None, **source: Any
) -> AsyncIterator[JudgedSource]:
    """`source` are settings of the one source. A test that changes its kind brings one of its own."""
    crd, namespace = own_crd or _shared_crd(api), api.namespace()
    async with AsyncExitStack() as stack:
        judged = JudgedSource(server.server, server.settings())
        judged.api, judged.crd, judged.namespace = api, crd, namespace
        judged.proxy = await stack.enter_async_context(RecordingProxy(api))
        way = ClusterSettings(kubeconfig=judged.proxy.kubeconfig(folder / "front.kubeconfig"), context="local")
        declared = SourceSettings(resource=crd.resource, collector="simulated", guard=GuardSettings(enabled=False))
        declared = msgspec.structs.replace(declared, **source)
        judged.settings = msgspec.structs.replace(
            judged.settings, clusters={"local": way}, sources={SOURCE: declared},
            feedback=FeedbackSettings(events=False, conditions=False),
        )  # fmt: skip
        judged.cluster = await stack.enter_async_context(await connect("local", way))
        judged.identity = await judged.cluster.identity()
        judged.provider = await stack.enter_async_context(SimulatedProvider())
        judged.simulated = await stack.enter_async_context(SimulatedHandler(judged.provider.address))
        # Workers end before what they work with.
        stack.push_async_callback(judged.close)
        await judged.arrive()
        yield judged


_CRDS: dict[str, Crd] = {}


def _shared_crd(api: TestApi) -> Crd:
    """One for all tests of a server, which live in namespaces of their own: a real one has work with every kind."""
    if api.url not in _CRDS:
        crd = Crd(group="knell.test", plural=f"gadgets{uuid.uuid4().hex[:8]}")
        api.kube.install(crd)
        _CRDS[api.url] = crd
    return _CRDS[api.url]
