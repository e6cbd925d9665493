"""One stage for a story of nodes on Azure: NodeClaims of a cluster, a subscription, and the service in between.
What the service did is read from its records, and from the stand-in's resources and journal."""

import asyncio
import contextlib
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from service.contract.azure import CLUSTER_TAG, KARPENTER_AZURE, NODEPOOL_TAG, resource_name
from service.local.azure import GROUP, REGION, Behaviour, Entry, Group, LocalAzure, Nic, There, Vm
from service.settings import RedisSettings, Settings, load
from service.stream.installation import Installation
from service.stream.views.deletions import DeletionView, list_deletions, one_deletion
from service.stream.views.jobs import JobView, list_jobs
from tests.clusters import TestApi
from tests.engine.waiting import stays, until
from tests.integration.operating import Answer, environment, invoke
from tests.karpenter import NODECLAIMS, Karpenter
from tests.scenarios.watch.service import Replica, Service

PATIENCE: Final = timedelta(seconds=40)
STEP: Final = 0.05
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
TAGS: Final = {CLUSTER_TAG: CLUSTER, NODEPOOL_TAG: "default"}


class Stage(Karpenter):
    """`document` are the settings, as their file has them; a test changes them before it starts something."""

    def __init__(self, api: TestApi, redis: RedisSettings, azure: LocalAzure, folder: Path) -> None:
        super().__init__(api.kube, str(uuid.uuid4()), GROUP)
        self.api, self.azure, self.redis, self.folder = api, azure, redis, folder
        self.home = api.namespace()
        self.installation = Installation(Settings(redis=redis))
        self.services: list[Service] = []
        self.replicas: list[Replica] = []
        self._since = 0
        # Deep, for tests change it.
        self.document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(QUICK))
        self.document["redis"] = {"url": str(redis.url), "prefix": redis.prefix}
        self.document["azure"] |= {"endpoint": azure.address, "nodes": {SOURCE: [self.nodes()]}}
        self.document["watch"]["namespace"] = self.home
        here = {"kubeconfig": str(api.kubeconfig(folder / "admin")), "context": "local"}
        self.document["clusters"] = {"here": here}
        self.document["sources"] = {SOURCE: {
            "resource": NODECLAIMS.resource, "collector": KARPENTER_AZURE, "cluster": "here", "mode": "observe",
            "guard": {"enabled": False},
        }}  # fmt: skip

    def nodes(self, **changes: str) -> dict[str, Any]:
        given = {"subscription": self.subscription, "resource_group": GROUP, "region": REGION, "cluster": CLUSTER}
        return {**given, **changes}

    def sweeping(self, **changes: Any) -> None:
        """With sweeps, from now on."""
        self.document["azure"]["sweep"] |= {"enabled": True, **changes}

    async def begin(self) -> None:
        await self.azure.behave(**msgspec.to_builtins(Behaviour()))
        await self.azure.set_rate(RATE)
        await self.azure.declare(Group(subscription=self.subscription))
        self._since = len(await self.azure.journal())

    async def aclose(self) -> None:
        for replica in self.replicas:
            replica.end()
        for service in self.services:
            await service.end()
        await asyncio.to_thread(self.clear)
        await self.installation.aclose()

    # ---- the service

    async def start(self, *, watches: bool = True, works: bool = True) -> Service:
        """Both sides in this process, with the settings as they stand; returns when the source is listed."""
        service = Service(load(self.config(), {}), None, watches=watches, works=works)
        self.services.append(service)
        await service.start()
        if watches:
            await service.until_watching(SOURCE)
        return service

    def launch(self, *words: str) -> Replica:
        """A real process, such as of `knell work`."""
        replica = Replica(self.folder, self.redis, self.config(), *words)
        self.replicas.append(replica)
        return replica

    def knell(self, *words: str) -> Answer:
        """A command, as an operator types it; from an async test in a thread, for it brings a loop of its own."""
        return invoke(environment(self.redis), "--config", str(self.config()), *words)

    def config(self) -> Path:
        path = self.folder / "knell.yaml"
        path.write_bytes(msgspec.yaml.encode(self.document))
        return path

    # ---- the world

    async def nic(self, claim: str, **given: Any) -> str:
        """An interface named after a claim, with Karpenter's tags; answers its guid."""
        made = {"name": resource_name(claim), "tags": TAGS, "subscription": self.subscription, **given}
        (guid,) = await self.azure.make(Nic(**made))
        return guid

    async def vm(self, claim: str, **given: Any) -> str:
        """A machine named after a claim with its interface, which goes with it; answers its guid."""
        name = resource_name(claim)
        await self.nic(claim, vm=name)
        made = {"name": name, "tags": TAGS, "subscription": self.subscription, "nics": (name,), **given}
        (guid,) = await self.azure.make(Vm(**made))
        return guid

    async def there(self, kind: Any = None) -> list[There]:
        """What is in this test's subscription."""
        return [one for one in await self.azure.there(kind) if one.subscription == self.subscription]

    async def names(self, kind: Any = None) -> set[str]:
        return {one.name for one in await self.there(kind)}

    async def asked(self, operation: str = "") -> Sequence[Entry]:
        """What was asked of this test's subscription by others than the builder."""
        entries = await self.azure.requests(operation, self._since)
        return [one for one in entries if one.subscription in ("", self.subscription)]

    async def deletes(self) -> Sequence[Entry]:
        return [one for one in await self.asked() if one.operation.endswith(".delete")]

    # ---- what came of it

    def cluster_uid(self) -> str:
        found: Any = self.kube.get("/api/v1/namespaces/kube-system")
        return str(found["metadata"]["uid"])

    async def record(self, uid: str, number: int = 1) -> DeletionView | None:
        cluster = await asyncio.to_thread(self.cluster_uid)
        return await one_deletion(self.installation, f"{cluster}/{NODECLAIMS.resource}/{uid}/{number}")

    async def deletions(self) -> list[DeletionView]:
        """All that are recorded, whatever state they are in."""
        listings = [await list_deletions(self.installation, state=state) for state in (None, "done", "dropped")]
        return [view for listing in listings for view in listing.deletions]

    async def jobs(self, **wanted: Any) -> Sequence[JobView]:
        return (await list_jobs(self.installation, **wanted)).jobs

    # ---- waiting

    async def until(self, what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
        """`look` may be a coroutine function; one that is not looks from another thread, for the service is in this."""

        async def seen() -> Any:
            for service in self.services:
                service.look()
            return await self._seen(look)

        return await until(what, seen, within, step=STEP)

    async def stays(self, what: str, look: Callable[[], Any], during: timedelta = timedelta(seconds=1)) -> None:
        await stays(what, partial(self._seen, look), during, step=STEP)

    async def _seen(self, look: Callable[[], Any]) -> Any:
        return await look() if inspect.iscoroutinefunction(look) else await asyncio.to_thread(look)

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

    async def until_gone(self, *names: str) -> None:
        async def look() -> bool:
            return not {resource_name(name) for name in names} & await self.names()

        await self.until(f"{names} are gone", look)


@contextlib.asynccontextmanager
async def opened(api: TestApi, redis: RedisSettings, azure: LocalAzure, folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(api, redis, azure, folder)
    try:
        await stage.begin()
        yield stage
    finally:
        await stage.aclose()
