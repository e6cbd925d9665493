"""Scenario with nodes on Azure: NodeClaims of a cluster, a subscription, and the service between them.
The effects of the service are read from its records, and from the stand-in's resources and journal."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from service.engine.batch_reads import text
from service.engine.orphans import OrphanSighting, OrphanSightings
from service.engine.views.deletions import DeletionView, deletion_details, one_deletion
from service.engine.views.jobs import JobView, list_jobs
from service.settings import RedisSettings
from service.sources.karpenter_azure import CLUSTER_TAG, KARPENTER_AZURE, NODEPOOL_TAG, resource_name
from standins.azure import (
    GROUP,
    REGION,
    AzureBehaviour,
    AzureFault,
    AzureJournalEntry,
    LocalAzure,
    Nic,
    ResourceGroup,
    ResourceState,
    Vm,
)
from standins.azure.behaviour import AzureFaultKind
from standins.azure.resources import NewResource
from tests.api_servers import TestApi
from tests.karpenter import NODECLAIMS, KarpenterObjects
from tests.scenarios.cloud_scenario import PATIENCE, CloudScenario

SOURCE: Final = "nodeclaims"
CLUSTER: Final = "prod"
QUICK: Final[dict[str, Any]] = {
    "azure": {"grace": "100ms", "sweep": {"enabled": False, "every": "300ms", "age": "500ms"}},
    "watch": {"page": 100, "retry": "300ms"},
    "worker": {"grace": "5s"},
    "retry": {
        "base": "50ms", "cap": "1s", "refused_recheck": "300ms", "blocked_base": "100ms", "blocked_cap": "300ms",
    },
    "log": {"level": "info", "format": "json"},
}  # fmt: skip
RATE: Final = 10.0
"""Seconds of the stand-in in one of ours: a machine that takes ten seconds to go is gone in one."""
NIC: Final = "azure-network-interface"
VM: Final = "azure-virtual-machine"
DISK: Final = "azure-disk"
PROBLEM: Final = "problem@sweep"
TAGS: Final = {CLUSTER_TAG: CLUSTER, NODEPOOL_TAG: "default"}


class AzureScenario(KarpenterObjects, CloudScenario):
    """`document` are the settings, as their file has them; a test changes them before it starts something."""

    def __init__(self, api: TestApi, redis: RedisSettings, azure: LocalAzure, folder: Path) -> None:
        KarpenterObjects.__init__(self, api.kube, str(uuid.uuid4()), GROUP)
        CloudScenario.__init__(self, api, redis, folder, QUICK)
        self.azure = azure
        self._since = 0
        self.document["azure"] |= {"endpoint": azure.address, "nodes": {SOURCE: [self.nodes()]}}
        self.document["sources"] = {SOURCE: {
            "resource": NODECLAIMS.resource, "collector": KARPENTER_AZURE, "cluster": "here", "mode": "observe",
            "guard": {"enabled": False},
        }}  # fmt: skip

    def nodes(self, **changes: str) -> dict[str, Any]:
        given = {"subscription": self.subscription, "resource_group": GROUP, "region": REGION, "cluster": CLUSTER}
        return {**given, **changes}

    def sweeping(self, **changes: Any) -> None:
        """With sweeps, from now on, as quickly one after the other as the settings say."""
        self.document["azure"]["sweep"] |= {"enabled": True, **changes}
        self.document["limits"] = {"*graph.queries": {"capacity": 1000, "rate": 1000}}

    async def begin(self) -> None:
        await self.azure.behave(**msgspec.to_builtins(AzureBehaviour()))
        # Past the window in which the queries of the test before are counted.
        await self.azure.advance(10)
        await self.azure.set_rate(RATE)
        await self.azure.declare(ResourceGroup(subscription=self.subscription))
        await asyncio.to_thread(self.settle)
        self._since = len(await self.azure.journal())

    async def aclose(self) -> None:
        await CloudScenario.aclose(self)
        await asyncio.to_thread(self.clear)

    # ---- the world

    async def nic(self, claim: str, **given: Any) -> str:
        """An interface named after a claim, with Karpenter's tags; answers its guid."""
        made = {"name": resource_name(claim), "tags": TAGS, "subscription": self.subscription, **given}
        (guid,) = await self.azure.make(Nic(**made))
        return guid

    async def make(self, made: Iterable[NewResource]) -> None:
        """Very many, in parts that a request has room for."""
        rest = iter(made)
        while step := list(islice(rest, 2000)):
            await self.azure.make(*step)

    async def vm(self, claim: str, **given: Any) -> str:
        """A machine named after a claim with its interface, which goes with it; answers its guid."""
        name = resource_name(claim)
        await self.nic(claim, vm=name)
        made = {"name": name, "tags": TAGS, "subscription": self.subscription, "nics": (name,), **given}
        (guid,) = await self.azure.make(Vm(**made))
        return guid

    async def trouble(self, what: AzureFaultKind, operation: str, **given: Any) -> None:
        """That one from now on, and no other, for this test's subscription."""
        # Resource Graph is asked for subscriptions in the body.
        mine = {"about": self.subscription} if operation == "graph.query" else {"subscription": self.subscription}
        await self.azure.set_faults(AzureFault(what=what, operation=operation, **{**mine, **given}))

    async def there(self, kind: Any = None) -> list[ResourceState]:
        """What is in this test's subscription."""
        return [one for one in await self.azure.there(kind) if one.subscription == self.subscription]

    async def names(self, kind: Any = None) -> set[str]:
        return {one.name for one in await self.there(kind)}

    async def asked(self, operation: str = "") -> Sequence[AzureJournalEntry]:
        """What was asked of this test's subscription by others than the builder."""
        entries = await self.azure.requests(operation, self._since)
        return [one for one in entries if one.subscription in ("", self.subscription)]

    async def deletes(self) -> Sequence[AzureJournalEntry]:
        return [one for one in await self.asked() if one.operation.endswith(".delete")]

    # ---- what came of it

    def cluster_uid(self) -> str:
        found: Any = self.kube.get("/api/v1/namespaces/kube-system")
        return str(found["metadata"]["uid"])

    async def record(self, uid: str, number: int = 1) -> DeletionView | None:
        cluster = await asyncio.to_thread(self.cluster_uid)
        return await one_deletion(self.installation, f"{cluster}/{NODECLAIMS.resource}/{uid}/{number}")

    async def jobs(self, **wanted: Any) -> Sequence[JobView]:
        return (await list_jobs(self.installation, **wanted)).jobs

    async def all_jobs(self, view: DeletionView) -> Sequence[JobView]:
        """Of one deletion, those that have ended, too."""
        found = await deletion_details(self.installation, view.id)
        return found.jobs if found is not None else []

    async def job(self, claim: str, kind: str = NIC) -> JobView | None:
        """The one that has to do with a claim's resource of a kind, in whatever deletion, as long as it goes on."""
        known = await self.jobs()
        return next((one for one in known if (one.target, one.kind) == (resource_name(claim), kind)), None)

    @property
    def orphans(self) -> OrphanSightings:
        """What sweeps remember."""
        return OrphanSightings(self.installation, SOURCE)

    async def sighting(self, claim: str) -> OrphanSighting | None:
        """What sweeps remember of what is named after a claim."""
        keys = await self.installation.caller.command("HKEYS", self.orphans.key)
        (uid, *_) = [*(text(key) for key in keys if text(key).endswith(f".{claim}")), ""]
        return (await self.orphans.get_many([uid])).get(uid)

    async def swept(self) -> dict[str, str]:
        """What the last pass noted."""
        answer = await self.installation.caller.command("HGETALL", self.installation.keys.of(0, f"source:{SOURCE}"))
        pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
        return {text(name): text(value) for name, value in pairs}

    async def sweep(self, *words: str) -> Any:
        """One pass, made by hand; what it found."""
        answer = await asyncio.to_thread(self.knell, "sweep", *words, "--output", "json")
        assert answer.code == 0, answer
        (found,) = answer.json["sweeps"]
        return found

    async def until_no_pass(self, *words: str) -> str:
        """A pass came to nothing, and the source says these words of why."""

        async def look() -> str:
            said = (await self.swept()).get(PROBLEM, "")
            return said if all(word in said for word in words) else ""

        return str(await self.until(f"a pass comes to nothing for {words}", look))

    # ---- waiting

    async def claimed(self, name: str, **given: Any) -> str:
        """A NodeClaim that the service has seen: it is in its inventory."""
        uid = await asyncio.to_thread(partial(self.claim, name, **given))
        launched = given.get("launched", True)

        async def remembered() -> bool:
            raw = await self.installation.caller.command(
                "HGET", self.installation.keys.of(0, f"inventory:{SOURCE}"), uid
            )
            return raw is not None and (not launched or b"virtualMachines" in raw)

        await self.until(f"{name} is remembered", remembered)
        return uid

    async def unclaimed(self, name: str) -> None:
        await asyncio.to_thread(self.unclaim, name)

    async def until_done(self, uid: str, within: timedelta = PATIENCE) -> DeletionView:
        async def look() -> DeletionView | None:
            record = await self.record(uid)
            return record if record is not None and record.state == "done" else None

        found = await self.until(f"the deletion of {uid} is done", look, within)
        assert isinstance(found, DeletionView)
        return found

    async def until_told(self, claim: str, *words: str, kind: str = NIC) -> JobView:
        """The job of a claim's resource says all of these words of why it stands where it stands."""
        seen: list[str] = []

        async def look() -> JobView | None:
            job = await self.job(claim, kind)
            if job is not None and job.reason not in seen:
                seen.append(job.reason)
            return job if job is not None and all(word in job.reason for word in words) else None

        try:
            found = await self.until(f"{kind} {claim} says {words}", look)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {seen}") from None
        assert isinstance(found, JobView)
        return found

    async def passes(self, number: int = 2) -> None:
        """So many whole passes of a sweep more have begun and ended from now on."""
        for _ in range(number + 1):
            before = await self.orphans.last_pass_at()

            async def another(before: int = before) -> bool:
                return await self.orphans.last_pass_at() > before

            await self.until("a pass was made", another)

    async def until_delayed(self, operation: str) -> None:
        async def look() -> bool:
            return operation in await self.azure.delayed()

        await self.until(f"{operation} waits at a gate", look)

    async def until_reserved(self, claim: str, guid: str, seconds: float) -> None:
        """Waits for the first delete of an interface, which a gate holds up, and reserves the interface before that
        delete is looked at: it is refused, however late it arrives."""
        await self.until_delayed("nic.delete")
        await self.nic(claim, guid=guid, reserved=seconds)
        await self.azure.set_faults()
        await self.azure.open()

    async def until_gone(self, *names: str) -> None:
        async def look() -> bool:
            return not {resource_name(name) for name in names} & await self.names()

        await self.until(f"{names} are gone", look)


@contextlib.asynccontextmanager
async def opened(api: TestApi, redis: RedisSettings, azure: LocalAzure, folder: Path) -> AsyncIterator[AzureScenario]:
    stage = AzureScenario(api, redis, azure, folder)
    try:
        await stage.begin()
        yield stage
    finally:
        await stage.aclose()
