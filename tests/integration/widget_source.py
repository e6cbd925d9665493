"""Settings file and commands for one source of widgets, with the test's Redis server and API server.
Every test has its own namespace for Leases, its own kind of object, and its own prefix in Redis."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from service.contract.names import FINALIZER
from service.settings import RedisSettings
from tests.api_servers import TestApi
from tests.integration.command_line import CommandResult, environment, invoke
from tests.integration.knell_process import KnellProcess
from tests.kube import Crd
from tests.redis_servers import TestServer


@dataclass(frozen=True, slots=True)
class WidgetSource:
    """`home` is where the Leases are, `namespace` where the test's objects are."""

    api: TestApi
    redis: RedisSettings
    folder: Path
    home: str
    namespace: str
    crd: Crd

    def config(self, name: str = "knell", **changes: Any) -> Path:
        """Writes the settings and says where; `changes` replace whole sections, or fields of the source `widgets`."""
        source = {"resource": self.crd.resource, "collector": "none"}
        sections: dict[str, Any] = {
            key: changes.pop(key) for key in ("clusters", "sources", "policy", "watch", "protection") if key in changes
        }
        document: dict[str, Any] = {
            "clusters": {"here": {"kubeconfig": str(self.api.kubeconfig(self.folder / "admin")), "context": "local"}},
            "sources": {"widgets": {**source, **changes}},
            **sections,
        }
        document["watch"] = {"namespace": self.home, "retry": "1s", **document.get("watch", {})}
        path = self.folder / f"{name}.yaml"
        path.write_bytes(msgspec.yaml.encode(document))
        return path

    def knell(
        self,
        config: Path,
        *words: str,
        answer: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> CommandResult:
        given = {**environment(self.redis), **(variables or {})}
        return invoke(given, "--config", str(config), *words, answer=answer)

    def start(self, config: Path, *words: str, **variables: str) -> KnellProcess:
        """A real process; whoever starts it sees to its end."""
        return KnellProcess(self.folder, self.redis, "--config", str(config), *words, **variables)

    def lease(self, name: str = "knell-widgets-0") -> Any:
        return self.api.kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases/{name}")

    def holder(self, name: str = "knell-widgets-0") -> str:
        """Who holds a Lease, by the name of the process; empty without a holder."""
        found = self.lease(name)
        return str(found["spec"].get("holderIdentity") or "").rpartition("_")[0] if found else ""

    # ---- the world

    def create(self, name: str, spec: Mapping[str, object] | None = None, **metadata: object) -> Any:
        body = {**self.crd.body(name, **metadata), "spec": dict(spec or {})}
        return self.api.kube.create(self.crd.path(self.namespace), body)

    def get(self, name: str) -> Any:
        return self.api.kube.get(self.crd.path(self.namespace, name))

    def patch(self, name: str, body: object) -> Any:
        return self.api.kube.patch(self.crd.path(self.namespace, name), body)

    def delete(self, name: str) -> None:
        self.api.kube.delete(self.crd.path(self.namespace, name))

    def marked(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and FINALIZER in found["metadata"].get("finalizers", [])


def widget_source(api: TestApi, server: TestServer, folder: Path, crd: Crd | None = None) -> WidgetSource:
    return WidgetSource(api, server.settings(), folder, api.namespace(), api.namespace(), crd or api.crd())
