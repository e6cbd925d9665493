"""Fixture with Cluster API clusters on AWS: objects on an API server, resources in the stand-in, and workers.
Every test has an account and a Namespace of its own; the stand-in's clock is ten times as fast as real time."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from service.contract import Event, Hold, Plan, Target
from service.engine.guard import Guard
from service.engine.kept_store import KeptStore
from service.kubernetes import KubernetesClient, connect
from service.settings import FeedbackSettings, GuardSettings, Settings, SourceSettings
from service.settings.features import FeatureSettings
from service.sources.capa import (
    AWS_CLUSTERS,
    AWS_FINALIZER,
    AWS_MANAGED_CONTROL_PLANES,
    CAPA,
    FEATURE,
    TASKS,
    AwsSettings,
)
from standins.aws.behaviour import AwsBehaviour
from standins.aws.builder import REGION, Vpc
from standins.aws.builder import AwsBuilder as AwsWorld
from standins.aws.process import LocalAws
from standins.aws.tags import by_cloud_provider
from tests.api_servers import TestApi
from tests.aws_kinds import AWS_KINDS
from tests.capi import AWS_CLUSTERS as AWS_CLUSTER_KIND
from tests.capi import AWS_MANAGED_CONTROL_PLANES as MANAGED_KIND
from tests.capi import CapiObjects, clear
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.kube import Crd
from tests.redis_servers import TestServer
from workers.collectors.capa.collector import CapaCollector
from workers.collectors.capa.components import capa_components
from workers.collectors.capa.final_check import FINAL_CHECK
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.handlers.components import CallBudgets, Context, GuardCheck, P
from workers.handlers.protocol import Handler
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_registry, guard_check
from workers.providers.aws.components import AwsProvider, aws_provider
from workers.runtime.call_budget import CallBudget
from workers.runtime.worker import Worker

UNMANAGED: Final = "unmanaged"
MANAGED: Final = "managed"
SOURCES: Final = {UNMANAGED: AWS_CLUSTERS, MANAGED: AWS_MANAGED_CONTROL_PLANES}
QUICKLY: Final = AwsSettings(
    allowed_tasks=TASKS,
    settle=timedelta(milliseconds=300),
    check_after=timedelta(milliseconds=100),
    drain_check=timedelta(milliseconds=200),
)
FAST: Final = 10.0


@dataclass
class CapaContext:
    """What the collector is built from; the fixture opens the provider by itself."""

    settings: Settings
    source_clusters: SourceClusters
    budgets: CallBudgets | None
    guard_check: GuardCheck | None
    kept_records: KeptStore
    patience: timedelta | None = None

    async def provider(self, opened: Callable[[Context], AbstractAsyncContextManager[P]]) -> P:
        raise NotImplementedError(opened)


class CapaSide(NamedTuple):
    """The opened provider, the collector, and the handlers of both."""

    provider: AwsProvider
    collector: CapaCollector
    handlers: tuple[Handler, ...]


@asynccontextmanager
async def capa_side(context: CapaContext, clock: Callable[[], float]) -> AsyncIterator[CapaSide]:
    async with (
        aws_provider(context, clock=clock) as provider,
        capa_components(context, provider, clock=clock) as made,
    ):
        assert isinstance(made.collector, CapaCollector)
        yield CapaSide(provider, made.collector, (*provider.handlers, *made.handlers))


class CapiFixture(EngineUnderTest):
    """Engine with two sources of Cluster API clusters, and an AWS account."""

    api: TestApi
    capi: CapiObjects
    aws: LocalAws
    resources: AwsWorld
    account: str
    cluster: KubernetesClient
    identity: str
    # Those of the side that was opened last.
    lately: SourceClusters
    # Seconds by which answers that a worker keeps for a while are older than they are.
    aged: float = 0.0

    # ---- settings

    def set(self, **aws: Any) -> None:
        """Settings of the section aws, from now on."""
        changed = msgspec.structs.replace(self.settings.section(AwsSettings), **aws)
        self.settings = msgspec.structs.replace(self.settings, sections={"aws": changed})

    def watch_also(self, *namespaces: str) -> None:
        sources = {
            name: msgspec.structs.replace(source, namespaces=(*source.namespaces, *namespaces))
            for name, source in self.settings.sources.items()
        }
        self.settings = msgspec.structs.replace(self.settings, sources=sources)

    # ---- time

    def clock(self) -> float:
        return time.monotonic() + self.aged

    def age(self, by: timedelta) -> None:
        """All answers that are kept are older by that, from now on."""
        self.aged += by.total_seconds()

    # ---- AWS

    async def calls(self, action: str = "") -> int:
        """Requests of others than the builder, in this test's account."""
        return sum(one.account == self.account for one in await self.aws.requests(action))

    async def actions(self) -> Counter[str]:
        return Counter(one.action for one in await self.aws.requests() if one.account == self.account)

    async def volumes(self) -> frozenset[str]:
        """Those that are there, with those of instances."""
        return frozenset(await AWS_KINDS["aws.volume"].there(self.resources))

    # ---- collecting

    def places(self) -> SourceClusters:
        async def remembered() -> dict[str, str]:
            return {}

        return SourceClusters(self.settings, {"local": self.cluster}, remembered)

    @asynccontextmanager
    async def side(self, settings: Settings | None = None, quota: CallBudgets | None = None) -> AsyncIterator[CapaSide]:
        places = self.lately = self.places()
        try:
            guarded = guard_check(Guard(self.installation), settings or self.settings)
            memory = KeptStore(self.installation)
            context = CapaContext(settings or self.settings, places, quota, guarded, memory)
            async with capa_side(context, self.clock) as side:
                yield side
        finally:
            await places.aclose()

    async def collect(self, found: Mapping[str, Any], side: CapaSide | None = None) -> Plan | Hold:
        """What a worker would plan for the object as it is now."""
        facts = await self.facts(found)
        if side is not None:
            return await side.collector.collect(facts)
        async with self.side() as own:
            return await _listed(own, facts)

    async def planned(self, found: Mapping[str, Any], side: CapaSide | None = None) -> list[Target]:
        plan = await (self.collect(found) if side is None else _listed(side, await self.facts(found)))
        assert isinstance(plan, Plan), plan
        return list(plan.targets)

    async def held(self, found: Mapping[str, Any], side: CapaSide | None = None) -> Hold:
        hold = await self.collect(found, side)
        assert isinstance(hold, Hold), [target.id for target in hold.targets]
        return hold

    async def facts(self, found: Mapping[str, Any]) -> ObjectFacts:
        resource, crd = _kind_of(found)
        meta = found["metadata"]
        served = await self.cluster.discover(resource)
        live = await self.cluster.get(served, meta["namespace"], meta["name"])
        assert live is not None
        source = _source_of(resource)
        ref = ObjectRef(
            deletion=f"{self.identity}/{resource}/{meta['uid']}/1", source=source, cluster=self.identity,
            resource=crd.resource, uid=meta["uid"], name=meta["name"], namespace=meta["namespace"],
        )  # fmt: skip
        return ObjectFacts(
            ref=ref, settings=self.settings.sources[source], labels=live.labels, annotations=live.annotations,
            namespace_annotations={}, features=self.settings.features, live=live,
        )  # fmt: skip

    # ---- a whole deletion

    def delete(self, found: Mapping[str, Any]) -> Any:
        """The object as it is afterwards; None where nothing held it."""
        _, crd = _kind_of(found)
        self.capi.delete(crd, found["metadata"]["name"])
        return self.capi.get(crd, found["metadata"]["name"])

    def delete_marked(self, name: str, vpc: Vpc | None, **metadata: Any) -> Any:
        """An unmanaged cluster that is going and waits for us."""
        made = self.capi.unmanaged(name, region=REGION, vpc=vpc.id if vpc is not None else "", **marked(**metadata))
        return self.delete(made)

    async def until_another_second(self, found: Mapping[str, Any]) -> None:
        """By the server's clock, in whose seconds objects begin to go."""
        went = datetime.fromisoformat(found["metadata"]["deletionTimestamp"])

        async def passed() -> bool:
            return await self.cluster.server_time() >= went + timedelta(seconds=1)

        await self.until("the server's clock shows another second", passed)

    def set_status(self, found: Mapping[str, Any], status: dict[str, Any]) -> None:
        path = _kind_of(found)[1].path(self.capi.namespace, found["metadata"]["name"])
        self.api.kube.patch(f"{path}/status", status)

    def read(self, found: Mapping[str, Any]) -> Any:
        return self.capi.get(_kind_of(found)[1], found["metadata"]["name"])

    def event(self, found: Mapping[str, Any]) -> Event:
        resource, meta = _kind_of(found)[0], found["metadata"]
        return Event(
            cluster=self.identity, resource=resource, uid=meta["uid"], name=meta["name"],
            namespace=meta["namespace"], source=_source_of(resource),
        )  # fmt: skip

    async def going(self, found: Mapping[str, Any]) -> Event:
        one = self.event(self.delete(found))
        await self.publish(one)
        return one

    async def stopped(
        self, stack: AsyncExitStack, vpc: Vpc, *, groups: Sequence[str] = ()
    ) -> tuple[Mapping[str, Any], Event, str]:
        """A cluster whose deletion stands still at a protected balancer: the object, its event, and the balancer."""
        tags = by_cloud_provider("prod", "default/web")
        balancer = await self.resources.balancer(vpc, tags, groups=groups)
        await self.resources.protect(balancer)
        made = self.capi.unmanaged("prod", region=REGION, vpc=vpc.id, **marked())
        one = await self.going(made)
        await self.work(stack)
        await self.until_job(one, "aws.balancer", "protect")
        return made, one, balancer

    async def work(self, stack: AsyncExitStack) -> RunningWorker:
        """A worker as `knell work` puts it together; it ends with the stack."""
        name = f"worker-{len(self.running) + 1}"
        own = msgspec.structs.replace(self.settings.worker, name=name)
        settings = msgspec.structs.replace(self.settings, worker=own)
        installation = self.install(settings)
        places = self.places()
        stack.push_async_callback(places.aclose)
        quota = CallBudget(installation.budgets, settings.worker.background_share)
        guarded = guard_check(Guard(installation), settings)
        memory = KeptStore(installation)
        context = CapaContext(settings, places, quota, guarded, memory)
        side = await stack.enter_async_context(capa_side(context, self.clock))
        registry = build_registry(
            settings, {"local": self.cluster}, installation, handlers=side.handlers, collectors=[side.collector],
            source_clusters=places,
        )  # fmt: skip
        made = Worker(installation, registry)
        running = RunningWorker(made, installation, asyncio.create_task(made.run(), name=name), Counter(), Counter())
        self.running.append(running)
        stack.push_async_callback(running.crash)

        async def ready() -> bool:
            return made.ready

        await self.until(f"{name} is ready", ready)
        return running

    async def until_held(self, one: Event, *words: str) -> str:
        """Why the whole deletion is held, once it is."""
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

    async def until_planned(self, one: Event) -> str:
        """The id of the job of the last look, once there is a plan."""

        async def found() -> str:
            jobs = await self.jobs_of(one) if "plan" in await self.deletion(one) else []
            kinds = {job: (await self.job(job)).get("kind") for job in jobs}
            return next((job for job, kind in kinds.items() if kind == FINAL_CHECK), "")

        return await self.until(f"{one.deletion} is planned", found)

    async def until_job(
        self, one: Event, kind: str, *words: str, held: bool = True, waits: bool = False
    ) -> dict[str, str]:
        """The record of the first job of a kind that says all of this, and is held or waits by itself."""
        shown = "waiting" if waits else "held"

        async def found() -> dict[str, str]:
            if "plan" not in await self.deletion(one):
                return {}
            for job in await self.jobs_of(one):
                record = await self.job(job)
                said = record.get("detail", "")
                right = record.get("kind") == kind and all(word in said for word in words)
                if right and (not held or record.get(shown) == "1"):
                    return record
            return {}

        return await self.until(f"a job of kind {kind} says {words}", found)


def marked(**metadata: Any) -> dict[str, Any]:
    """Metadata of an object that waits for us."""
    return {"finalizers": [AWS_FINALIZER], **metadata}


def _kind_of(found: Mapping[str, Any]) -> tuple[str, Crd]:
    crd = MANAGED_KIND if found["kind"] == MANAGED_KIND.kind else AWS_CLUSTER_KIND
    return crd.resource, crd


def _source_of(resource: str) -> str:
    return next(name for name, of in SOURCES.items() if of == resource)


@asynccontextmanager
async def clusters_on(api: TestApi, server: TestServer, aws: LocalAws, folder: Path) -> AsyncIterator[CapiFixture]:
    """The environment names the account, as it does for a worker without identities."""
    account = os.environ["AWS_ACCESS_KEY_ID"].removeprefix("AKIA")
    async with AsyncExitStack() as stack:
        await aws.behave(**msgspec.to_builtins(AwsBehaviour()))
        await aws.set_rate(FAST)
        made = CapiFixture(server.server, server.settings())
        namespace = api.namespace()
        made.api, made.aws, made.account, made.capi = api, aws, account, CapiObjects(api.kube, namespace)
        clear(api.kube)
        way = api.settings(folder)
        declared = {
            name: SourceSettings(
                resource=resource, collector=CAPA, namespaces=(namespace,), guard=GuardSettings(enabled=False)
            )
            for name, resource in SOURCES.items()
        }
        made.settings = msgspec.structs.replace(
            made.settings, clusters={"local": way}, sources=declared,
            features=FeatureSettings(frozenset({FEATURE})),
            sections={"aws": msgspec.structs.replace(QUICKLY, endpoint=aws.address)},
            feedback=FeedbackSettings(events=False, conditions=False),
        )  # fmt: skip
        made.change("retry", refused_recheck=timedelta(milliseconds=300))
        made.cluster = await stack.enter_async_context(await connect("local", way))
        made.identity = await made.cluster.identity()
        made.resources = await stack.enter_async_context(AwsWorld(aws.address, account=account, region=REGION))
        stack.push_async_callback(made.close)
        await made.arrive()
        yield made


async def _listed(side: CapaSide, facts: ObjectFacts) -> Plan | Hold:
    """What is collected once all lists have ended: on a busy machine one may take longer than an attempt, and a
    connection longer than the client waits for one."""
    busy = ("listing goes on", "Connect timeout on endpoint")
    while True:
        plan = await side.collector.collect(facts)
        if not isinstance(plan, Hold) or not any(words in plan.reason for words in busy):
            return plan
