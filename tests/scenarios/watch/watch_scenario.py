"""Scenario with the whole service: two kinds of objects in a cluster, their resources at the provider, and Redis.
`vms` have our finalizer, `disks` are only observed; everything that a test creates here is checked at its end."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.views.deletions import DeletionView, list_deletions
from service.settings import RedisSettings, Settings, load
from standins.controlplane import ControlPlane
from tests.api_servers import ApiServer
from tests.kube import Crd
from tests.scenarios.watch.objects import DISKS, VMS, ScenarioObjects, kinds_of
from tests.scenarios.watch.service import KnellReplica, Service
from tests.simulated.source import simulated_source

QUICK: Final[dict[str, Any]] = {
    "watch": {"page": 100, "retry": "500ms"},
    "worker": {"grace": "5s"},
    "retry": {
        "base": "50ms",
        "cap": "1s",
        "refused_recheck": "500ms",
        "blocked_base": "100ms",
        "blocked_cap": "300ms",
    },
    "log": {"level": "info", "format": "json"},
}


class WatchScenario(ScenarioObjects):
    """`document` are the settings, as their file has them; a test changes them before it starts something."""

    def __init__(self, server: ApiServer, redis: RedisSettings, folder: Path) -> None:
        super().__init__(server, folder)
        self.redis = redis
        self.home = self.cluster = ""
        self.services: list[Service] = []
        self.replicas: list[KnellReplica] = []
        self.document: dict[str, Any] = {}
        self.installation = Installation(Settings(redis=redis))

    async def prepare(self) -> None:
        self.crds = await kinds_of(self.admin, self.server)
        self.home, self.namespace = await self.new_namespace(), await self.new_namespace()
        found: Any = await self.admin.get("/api/v1/namespaces/kube-system")
        self.cluster = found["metadata"]["uid"]
        # Deep, for tests change it.
        self.document = msgspec.json.decode(msgspec.json.encode(QUICK))
        self.document["redis"] = {"url": str(self.redis.url), "prefix": self.redis.prefix}
        self.document["watch"]["namespace"] = self.home
        self.document["clusters"] = {"here": {"kubeconfig": str(self.kubeconfig()), "context": "local"}}
        self.document["sources"] = {
            VMS: self.source(self.crds[VMS]),
            DISKS: self.source(self.crds[DISKS], mode="observe"),
        }

    def kubeconfig(self, url: str = "", name: str = "admin") -> Path:
        """The admin's way in; with `url`, through what stands in front of the server there."""
        path = self.server.kubeconfig(self.folder / name)
        if url:
            path.write_text(path.read_text().replace(self.server.url, url))
        return path

    def source(self, crd: Crd, **changes: Any) -> dict[str, Any]:
        given = {"resource": crd.resource, "collector": "simulated", "namespaces": [self.namespace]}
        return {**given, "guard": {"enabled": False}, **changes}

    def be_impatient(self) -> None:
        """For stories with a crash in them: who is silent for seconds is taken for dead."""
        self.document["worker"] |= {"lease": "4s", "attempt_timeout": "3s", "plan_claim": "2s"}
        self.document["redis"]["call_timeout"] = "2s"

    def config(self, name: str = "knell") -> Path:
        """Writes the settings as they stand."""
        path = self.folder / f"{name}.yaml"
        path.write_bytes(msgspec.yaml.encode(self.document))
        return path

    async def aclose(self) -> None:
        for replica in self.replicas:
            replica.end()
        for service in self.services:
            await service.end()
        await self.installation.aclose()

    def look_after(self) -> None:
        for service in self.services:
            service.look()

    # ---- the service

    async def start(self, *sources: str, watches: bool = True, works: bool = True) -> Service:
        """Both sides in this process, with the settings as they stand; returns when these sources are listed."""
        service = Service(load(self.config(), {}), watches=watches, works=works)
        self.services.append(service)
        await service.start()
        if watches:
            await service.until_watching(*(sources or self.document["sources"]))
        return service

    def launch(self, *words: str, config: Path | None = None) -> KnellReplica:
        """A real process, such as of `knell run`."""
        replica = KnellReplica(
            self.folder, self.redis, config or self.config(), *words, SIMULATED_PROVIDER=self.provider.address
        )
        self.replicas.append(replica)
        return replica

    async def holder(self, source: str = VMS) -> str:
        """The name of the process that holds the Lease of a source; empty where nobody does."""
        lease = await self.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases/knell-{source}-0")
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]

    # ---- what it knows

    async def until_remembered(self, *names: str, source: str = DISKS) -> None:
        uids = [self.made[name].uid for name in names]

        async def known() -> bool:
            return len(await Inventory(self.installation, source).get_many(uids)) == len(uids)

        await self.until(f"{len(uids)} objects are remembered", known)

    async def ready(self, *names: str) -> None:
        """Marked, or remembered."""
        await self.until_marked(*(name for name in names if self._mode(name) == "finalizer"))
        for source in {self.made[name].source for name in names}:
            observed = [one for one in names if self.made[one].source == source and self._mode(one) == "observe"]
            await self.until_remembered(*observed, source=source)

    def _mode(self, name: str) -> str:
        return str(self.document["sources"][self.made[name].source].get("mode", "finalizer"))

    # ---- what came of it

    async def deletions(self) -> dict[str, DeletionView]:
        """All that are recorded, by id, whatever state they are in."""
        found: dict[str, DeletionView] = {}
        for state in (None, "done", "dropped"):
            for view in (await list_deletions(self.installation, state=state, limit=1_000_000)).deletions:
                found[view.id] = view
        return found

    def deletion_of(self, name: str, round_: int = 1) -> str:
        made = self.made[name]
        return f"{self.cluster}/{made.crd.resource}/{made.uid}/{round_}"

    async def done(self) -> set[str]:
        """Names of the objects whose deletion is done."""
        ids = {view.id for view in (await list_deletions(self.installation, state="done", limit=1_000_000)).deletions}
        return {name for name in self.made if self.deletion_of(name) in ids}

    async def finished(self) -> int:
        """How many deletions have ended."""
        return int(await self.installation.caller.command("ZCARD", self.installation.keys.of(0, "finished")))

    async def stats(self) -> dict[str, int]:
        raw = await self.installation.caller.command("HGETALL", self.installation.keys.of(0, "stats"))
        return {name.decode(): int(float(value)) for name, value in raw.items()}

    async def decisions(self, what: str) -> list[dict[str, str]]:
        """Entries of the audit on that kind of decision."""
        client: Any = self.installation.connections.client
        found = await client.xrange(self.installation.keys.of(0, "audit"))
        entries = [{key.decode(): value.decode() for key, value in raw.items()} for _, raw in found]
        return [entry for entry in entries if entry["entry"] == "decision" and entry["what"] == what]


@contextlib.asynccontextmanager
async def opened(server: ApiServer, redis: RedisSettings, folder: Path) -> AsyncIterator[WatchScenario]:
    scenario = WatchScenario(server, redis, folder)
    async with scenario.provider, scenario.admin:
        with simulated_source(scenario.provider.address):
            try:
                await scenario.prepare()
                yield scenario
            finally:
                await scenario.aclose()
                await scenario.clear()


def control_plane(server: ApiServer) -> ControlPlane:
    assert isinstance(server, ControlPlane)
    return server
