"""Fixture for sweeps on Azure: NodeClaims on an API server, a subscription in the stand-in, a real Valkey, and passes
that a test starts. Time is the server's, which a test moves; workers are started by tests that need them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.contract import Event
from service.engine.inventory import Inventory, InventoryRecord
from service.engine.orphans import OrphanSighting, OrphanSightings
from service.engine.views.deletions import DeletionView, list_deletions
from service.kubernetes import KubernetesClient, connect
from service.settings import FeedbackSettings, GuardSettings, Settings, SourceSettings
from service.sources.karpenter_azure import KARPENTER_AZURE, NODECLAIMS, AzureNodes, AzureSettings, SweepSettings
from service.sources.registry import source_named
from service.watching.assignment import Assignment
from service.watching.source_watch import SourceWatch
from standins.azure import GROUP, REGION, Nic
from tests.engine.engine_under_test import EngineUnderTest, RunningWorker
from tests.integration.azure_removal import SOURCE, TAGS, AzureRemovalFixture
from tests.redis_servers import TestServer
from workers.app import open_app
from workers.collectors.karpenter_azure.listing import AzureLister
from workers.collectors.karpenter_azure.orphans import KarpenterOrphans
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_registry, build_source_clusters
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.kinds import AzureKind
from workers.runtime.worker import Worker
from workers.sweeps.sweep_pass import SweepPass, SweepResult
from workers.sweeps.waiting_period import Orphan

AGE: Final = timedelta(minutes=5)


class AzureSweepFixture(EngineUnderTest):
    """`cloud` is the test's part of Azure and of the cluster."""

    cloud: AzureRemovalFixture
    cluster: KubernetesClient
    identity: str
    stack: AsyncExitStack

    # ---- settings

    def sweeps(self, **changes: Any) -> None:
        azure = self.settings.section(AzureSettings)
        changed = msgspec.structs.replace(azure, sweep=msgspec.structs.replace(azure.sweep, **changes))
        self.settings = msgspec.structs.replace(self.settings, sections={"azure": changed})

    def source(self, **changes: Any) -> None:
        declared = msgspec.structs.replace(self.settings.sources[SOURCE], **changes)
        self.settings = msgspec.structs.replace(self.settings, sources={SOURCE: declared})

    def nodes(self, **changes: Any) -> AzureNodes:
        given = {"subscription": self.cloud.subscription, "resource_group": GROUP, "region": REGION, "cluster": "prod"}
        return AzureNodes(**{**given, **changes})

    def places(self, *nodes: AzureNodes) -> None:
        """The groups that the settings name from now on."""
        changed = msgspec.structs.replace(self.settings.section(AzureSettings), nodes={SOURCE: nodes})
        self.settings = msgspec.structs.replace(self.settings, sections={"azure": changed})

    # ---- Azure

    async def nic(self, suffix: str = "a", **given: Any) -> str:
        """An interface that is named after a claim which there need not be; answers the claim's name."""
        claim = self.cloud.name(suffix)
        await self.cloud.nic(f"aks-{claim}", **given)
        return claim

    def many(self, number: int) -> list[Nic]:
        return [
            Nic(name=f"aks-many-{one:04}", tags=TAGS, subscription=self.cloud.subscription) for one in range(number)
        ]

    # ---- passes

    def one_pass(
        self,
        *,
        cluster: KubernetesClient | None = None,
        clusters: Mapping[str, KubernetesClient] | None = None,
        **how: Any,
    ) -> SweepPass:
        reached = clusters if clusters is not None else {"here": cluster or self.cluster}
        installation = self.install()
        places = build_source_clusters(self.settings, reached, installation)
        self.stack.push_async_callback(places.aclose)
        lister = AzureLister(lambda where: self.cloud.calls(BudgetCallMeter(where, None), where))
        finder = KarpenterOrphans(self.settings.section(AzureSettings), lister)
        return SweepPass(self.settings, installation, places, finder, SOURCE, **{"shown": True, **how})

    async def sweep(self, **how: Any) -> SweepResult:
        return await self.one_pass(**how).run()

    async def ripe(self, **how: Any) -> SweepResult:
        """Two passes with the age between them."""
        await self.sweep(**how)
        await self.jump(AGE)
        return await self.sweep(**how)

    async def found(self, **how: Any) -> dict[str, Orphan]:
        return by_claim(await self.sweep(**how))

    @property
    def orphans(self) -> OrphanSightings:
        return OrphanSightings(self.installation, SOURCE)

    def uid(self, claim: str) -> str:
        """What the deletion of an orphan of that name in the test's own group goes by."""
        return f"orphan.{self.cloud.subscription}.{GROUP}.{claim}".lower()

    async def sightings(self) -> dict[str, OrphanSighting]:
        raw = await self.client.hgetall(self.orphans.key)
        return {uid.decode(): msgspec.json.decode(text, type=OrphanSighting) for uid, text in raw.items()}

    # ---- the inventory

    @property
    def inventory(self) -> Inventory:
        return Inventory(self.installation, SOURCE)

    async def remember(self, claim: str, **given: Any) -> str:
        """A record of a NodeClaim, as the watch side writes it."""
        uid = f"uid-{claim}"
        await self.inventory.save({uid: InventoryRecord(**{"v": 1, "name": claim, **given})})
        return uid

    # ---- what was told

    async def published(self) -> dict[str, DeletionView]:
        """Deletions by uid and round, whatever state they are in."""
        listings = [await list_deletions(self.installation, state=state) for state in (None, "done", "dropped")]
        return {f"{view.uid}/{view.round}": view for listing in listings for view in listing.deletions}

    async def until_state(self, state: str, number: int = 1) -> list[DeletionView]:
        """So many deletions have that state."""

        async def look() -> list[DeletionView]:
            found = [view for view in (await self.published()).values() if view.state == state]
            return found if len(found) == number else []

        return await self.until(f"{number} are {state}", look)

    async def until_refused(self, view: DeletionView, kind: AzureKind) -> str:
        """The job of that kind waits for a person; answers its id."""

        async def refused() -> str:
            if not (await self.deletion(view.id)).get("plan"):
                return ""
            for job in await self.jobs_of(self.event(view)):
                record = await self.job(job)
                if record.get("kind") == kind.name and "stays until that is taken off" in record.get("detail", ""):
                    return job
            return ""

        return await self.until(f"the {kind.name} of {view.name} is refused", refused)

    def event(self, view: DeletionView) -> Event:
        return Event(
            cluster=view.cluster, resource=view.resource, uid=view.uid, name=view.name, source=view.source,
            round=view.round,
        )  # fmt: skip

    # ---- who watches, and who works

    async def watch(self) -> SourceWatch:
        """The watch side of the source, as soon as it has listed everything; it ends with the test."""
        declared = self.settings.sources[SOURCE]
        # Not by way of the front, which passes on whole answers and no watches.
        cluster = await self.stack.enter_async_context(await connect("here", self.settings.clusters["here"]))
        run = SourceWatch(
            Assignment(
                name=SOURCE, settings=declared, cluster=cluster, cluster_uid=self.identity,
                installation=self.install(), recognise=source_named(declared.collector).recognise,
            )
        )  # fmt: skip
        task = asyncio.create_task(run.run())

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        async def listed() -> bool:
            return run.ready

        self.stack.push_async_callback(end)
        await self.until("everything is listed", listed)
        return run

    async def relist(self, run: SourceWatch) -> None:
        before = run.counters.relists
        await self.inventory.request_relist()

        async def listed() -> bool:
            return run.counters.relists > before

        await self.until("it is listed again", listed)

    async def work(self) -> RunningWorker:
        """A worker as `knell work` puts it together; it ends with the test."""
        name = f"worker-{len(self.running) + 1}"
        own = msgspec.structs.replace(self.settings.worker, name=name)
        settings = msgspec.structs.replace(self.settings, worker=own)
        installation = self.install(settings)
        app = await self.stack.enter_async_context(open_app(settings, {"here": self.cluster}, installation))
        # Without the loops of sweeps: passes are started by the test.
        registry = build_registry(
            settings, {"here": self.cluster}, installation, handlers=app.handlers, collectors=app.collectors,
            source_clusters=app.source_clusters,
        )  # fmt: skip
        made = Worker(installation, registry)
        running = RunningWorker(made, installation, asyncio.create_task(made.run(), name=name), Counter(), Counter())
        self.running.append(running)
        self.stack.push_async_callback(running.crash)

        async def ready() -> bool:
            return made.ready

        await self.until(f"{name} is ready", ready)
        return running


def by_claim(swept: SweepResult) -> dict[str, Orphan]:
    return {one.owner: one for one in swept.orphans}


def no_places(settings: Settings) -> SourceClusters:
    async def remembered() -> dict[str, str]:
        return {}

    return SourceClusters(settings, {}, remembered)


@pytest.fixture
async def sweeping(
    embedded_server: TestServer, removing: AzureRemovalFixture, tmp_path: Path
) -> AsyncIterator[AzureSweepFixture]:
    async with AsyncExitStack() as stack:
        made = AzureSweepFixture(embedded_server.server, embedded_server.settings())
        made.cloud, made.cluster, made.stack = removing, removing.cluster, stack
        stack.push_async_callback(made.close)
        declared = SourceSettings(
            resource=NODECLAIMS, collector=KARPENTER_AZURE, mode="observe", cluster="here",
            guard=GuardSettings(enabled=False),
        )  # fmt: skip
        made.settings = msgspec.structs.replace(
            made.settings, clusters={"here": removing.api.settings(tmp_path)}, sources={SOURCE: declared},
            sections={"azure": AzureSettings(
                nodes={SOURCE: (made.nodes(),)}, endpoint=removing.azure.address, grace=timedelta(0),
                sweep=SweepSettings(age=AGE),
            )},
            feedback=FeedbackSettings(events=False, conditions=False),
        )  # fmt: skip
        made.change("retry", refused_recheck=timedelta(milliseconds=200))
        made.identity = await removing.cluster.identity()
        await asyncio.to_thread(removing.settle)
        await made.arrive()
        yield made
