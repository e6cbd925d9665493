"""Fixture for removals on Azure: a subscription in the stand-in, a cluster, and batches that tests pass to a handler.
After every attempt the tokens must balance: the tokens that stay drawn match the requests that the stand-in got."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.contract import Draw, Job, JobRecord, Pause, Verdict
from service.contract.version import VERSION
from service.kubernetes import KubernetesClient, connect
from service.settings import Settings, SourceSettings
from service.sources.karpenter_azure import (
    CLUSTER_TAG,
    KARPENTER_AZURE,
    NODECLAIMS,
    NODEPOOL_TAG,
    AzureNodes,
    AzureSettings,
    node_claim_of,
)
from standins.azure import (
    GROUP,
    REGION,
    AzureBehaviour,
    AzureJournalEntry,
    LocalAzure,
    ResourceGroup,
    ResourceState,
)
from tests.api_servers import ApiServer, TestApi
from tests.azure_kinds import AZURE_KINDS, AzureKindRow
from tests.karpenter import KarpenterObjects
from tests.recording_batch import RecordingBatch
from tests.recording_proxy import RecordingProxy
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.collectors.karpenter_azure.judge import KarpenterJudge
from workers.collectors.karpenter_azure.node_protection import NodeProtection
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords
from workers.handlers.protocol import Handler
from workers.handlers.source_clusters import SourceClusters
from workers.providers.azure.call_meters import BudgetCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.claims import AzureClaim, ClaimJudges, ConsentedObject, Consents
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.host_removal import azure_removal
from workers.providers.azure.kinds import KINDS, AzureKind
from workers.providers.azure.limits import Call, LaneLimits, call_draws
from workers.providers.azure.model import AzureScope, CallMeter

NAME: Final = "aks-a"
TAGS: Final = {CLUSTER_TAG: "prod", NODEPOOL_TAG: "default"}
RESERVE: Final = 0.2
NOT_READY: Final = timedelta(minutes=10)
SOURCE: Final = "nodeclaims"
LANES: Final = LaneLimits(KINDS, RESERVE)

_CALLS: Final[dict[str, Call]] = {
    operation: call
    for row in AZURE_KINDS.values()
    for operation, call in ((row.read, row.reading), (row.delete, row.removing))
}


class AzureRecordingBatch(RecordingBatch):
    """A batch of one lane of Azure, which reserves what that lane draws on."""

    def __init__(self, lane: str, jobs: Sequence[Job], *, clear: Exception | None = None) -> None:
        super().__init__(lane, jobs, LANES.draws(lane) or (), clear=clear)

    def moved(self, lane: str) -> "AzureRecordingBatch":
        """A batch of the same jobs in another lane."""
        return type(self)(lane, self.jobs, clear=self._clear)

    @property
    def pauses(self) -> dict[str, timedelta | None]:
        return {one.limit: one.wait for one in self.told if isinstance(one, Pause)}

    @property
    def answered(self) -> dict[str, float]:
        """How many tokens' worth of calls were told to have come back, by limit."""
        found: dict[str, float] = {}
        for one in self.told:
            assert one.tokens is not None
            found[one.limit] = found.get(one.limit, 0.0) + one.tokens
        return found


class AzureRemovalFixture(KarpenterObjects):
    """`proxy` stands before the API server, where a test can have it refuse."""

    def __init__(
        self, azure: LocalAzure, api: TestApi, proxy: RecordingProxy, cluster: KubernetesClient, clients: AzureClients
    ) -> None:
        super().__init__(api.kube, str(uuid.uuid4()), GROUP)
        self.azure, self.api, self.proxy, self.cluster, self.clients = azure, api, proxy, cluster, clients
        self.where = AzureScope(subscription=self.subscription, group=GROUP.lower(), region=REGION)
        declared = SourceSettings(resource=NODECLAIMS, collector=KARPENTER_AZURE, mode="observe")
        self.settings = Settings(sources={SOURCE: declared}, clusters={"here": api.settings(Path(os.devnull).parent)})
        self.places = self.reached({"here": cluster})
        self.nodes = NodeProtection(self.places, NOT_READY)
        self.consents = Consents()
        # What a person abandoned.
        self.memory: KeptRecords = NoKeptRecords()
        # The groups that the settings name.
        self.named = (self.group_named(),)
        self.since = 0
        self.judge: type[KarpenterJudge] = KarpenterJudge

    def group_named(self, **changes: Any) -> AzureNodes:
        given = {"subscription": self.subscription, "resource_group": GROUP, "region": REGION, "cluster": "prod"}
        return AzureNodes(**{**given, **changes})

    def reached(self, clusters: dict[str, KubernetesClient]) -> SourceClusters:
        async def remembered() -> dict[str, str]:
            return {}

        return SourceClusters(self.settings, clusters, remembered)

    # ---- the world

    async def make(self, row: AzureKindRow, name: str = NAME, **given: Any) -> str:
        """Creates one with Karpenter's tags in this subscription; answers its guid."""
        return await row.make(self.azure, name, **{"tags": TAGS, "subscription": self.subscription, **given})

    async def nic(self, name: str = NAME, **given: Any) -> str:
        return await self.make(AZURE_KINDS["azure-network-interface"], name, **given)

    async def vm(self, name: str = NAME, **given: Any) -> str:
        return await self.make(AZURE_KINDS["azure-virtual-machine"], name, **given)

    async def disk(self, name: str = NAME, **given: Any) -> str:
        return await self.make(AZURE_KINDS["azure-disk"], name, **given)

    async def ip(self, name: str = NAME, **given: Any) -> str:
        return await self.make(AZURE_KINDS["azure-public-ip"], name, **given)

    async def there(self, kind: Any = None) -> list[ResourceState]:
        return [one for one in await self.azure.there(kind) if one.subscription == self.subscription]

    async def names(self, kind: Any = None) -> set[str]:
        return {one.name for one in await self.there(kind)}

    # ---- asking

    def calls(self, meter: CallMeter | None = None, where: AzureScope | None = None) -> AzureCalls:
        return AzureCalls(self.clients, where or self.where, meter or BudgetCallMeter(self.where, None), RESERVE)

    def claim_of(self, **changes: Any) -> KarpenterClaim:
        made = KarpenterClaim(collector=KARPENTER_AZURE, where=self.where, source=SOURCE, claim="a", cluster="prod")
        return msgspec.structs.replace(made, **changes)

    def batch(
        self,
        kind: AzureKind,
        *names: str,
        looks: bool = False,
        claim: AzureClaim | None = None,
        clear: Exception | None = None,
        of: type[AzureRecordingBatch] = AzureRecordingBatch,
        **record: Any,
    ) -> AzureRecordingBatch:
        """Jobs in the lane in which a kind is removed, or with `looks` in the one in which it is looked at."""
        lane = (claim or self.claim_of()).where.lane(kind.reading if looks else kind.removing)
        jobs: list[Job] = []
        for number, name in enumerate(names or (NAME,)):
            whose = claim or self.claim_of(claim=node_claim_of(name))
            data = msgspec.json.encode(whose).decode()
            given = {"v": VERSION, "stage": 0, "lane": lane, "kind": kind.name, "data": data, "target": name}
            # Each claim has a deletion of its own.
            deletion = f"deletion-{number + 1}" if number else "deletion"
            self.consents.record(deletion, ConsentedObject(KARPENTER_AZURE, SOURCE, node_claim_of(name)))
            jobs.append(Job(f"{deletion}#1.0", 7, JobRecord(**{**given, **record})))
        return of(lane, jobs, clear=clear)

    def removal(self, kind: AzureKind) -> Handler:
        def calling(where: AzureScope, meter: CallMeter) -> AzureCalls:
            return self.calls(meter, where)

        settings = AzureSettings(nodes={SOURCE: self.named}, reserve=RESERVE)
        judges = ClaimJudges(self.collector_of)
        judges.register(KARPENTER_AZURE, self.judge(settings, self.nodes, self.memory))
        return azure_removal(kind, calling, LANES, judges, self.consents, self.memory)

    def collector_of(self, source: str) -> str:
        declared = self.settings.sources.get(source)
        return declared.collector if declared is not None else ""

    async def attempt(self, batch: AzureRecordingBatch, *, balances: bool = True) -> dict[str, Verdict | Exception]:
        """One attempt; the answer is by target. The tokens balance afterwards."""
        kind = next(one for one in KINDS if one.name == batch.jobs[0].kind)
        self.since = len(await self.azure.journal())
        found: dict[str, Verdict | Exception] = {}
        async for job, verdict in self.removal(kind).attempt(batch):
            found[job.target] = verdict
        if balances:
            asked = await self.drawn()
            assert batch.spent == asked
            assert batch.answered == asked
        return found

    async def one(self, batch: AzureRecordingBatch, **how: Any) -> Verdict | Exception:
        (verdict,) = (await self.attempt(batch, **how)).values()
        return verdict

    # ---- what Azure was asked

    async def requests(self) -> list[AzureJournalEntry]:
        """Since the last attempt began, in order."""
        entries = await self.azure.requests(since=self.since)
        return [one for one in entries if one.subscription in ("", self.subscription)]

    async def asked(self) -> list[str]:
        return [one.operation for one in await self.requests()]

    async def drawn(self) -> dict[str, float]:
        """What those requests draw on."""
        found: dict[str, float] = {}
        draws: list[Draw] = [
            draw for one in await self.asked() for draw in call_draws(self.where, _CALLS[one], RESERVE)
        ]
        for draw in draws:
            found[draw.limit.name] = found.get(draw.limit.name, 0.0) + draw.cost
        return found


@asynccontextmanager
async def prepared(azure: LocalAzure) -> AsyncIterator[LocalAzure]:
    """Its clock stands until a test moves it, and nothing is left of the window in which others asked."""
    await azure.behave(**msgspec.to_builtins(AzureBehaviour()))
    await azure.set_rate(0)
    await azure.advance(10)
    yield azure
    await azure.set_faults()


@pytest.fixture
async def azure(local_azure: LocalAzure, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalAzure]:
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    for name, value in local_azure.identity().items():
        monkeypatch.setenv(name, value)
    # On a busy machine what was read may be old by the time that it is acted on.
    for name in ("handlers.evidence_age.FRESH", "providers.azure.kind_calls.FRESH_SIGNS"):
        monkeypatch.setattr(f"workers.{name}", timedelta(minutes=5))
    async with prepared(local_azure) as made:
        yield made


@pytest.fixture
def own_api(embedded_api: ApiServer) -> Iterator[TestApi]:
    lent = TestApi("embedded", embedded_api)
    yield lent
    lent.clear()


@pytest.fixture
async def removing(azure: LocalAzure, own_api: TestApi, tmp_path: Path) -> AsyncIterator[AzureRemovalFixture]:
    async with RecordingProxy(own_api) as proxy, AzureClients(azure.address) as clients:
        way = msgspec.structs.replace(own_api.settings(tmp_path), kubeconfig=proxy.kubeconfig(tmp_path / "front"))
        async with await connect("here", way) as cluster:
            made = AzureRemovalFixture(azure, own_api, proxy, cluster, clients)
            await azure.declare(ResourceGroup(subscription=made.subscription))
            made.since = len(await azure.journal())
            try:
                yield made
            finally:
                await made.nodes.aclose()
                await made.places.aclose()
                made.clear()
