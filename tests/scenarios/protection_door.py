"""The whole door on the real control plane: processes of `knell webhook` behind one address, their configuration and
certificate, and kinds of objects that are protected."""

import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from service.admission.manifests import webhook_configuration
from service.admission.names import CONFIGURATION
from service.settings import RedisSettings, Settings, load
from standins.controlplane import ControlPlane
from standins.ports import free_ports
from tests.integration.knell_process import KnellProcess
from tests.kube import Crd, Kube, KubeResponse, wait_until
from tests.scenarios.replica_relay import ReplicaRelay

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MARK: Final = "services.k8s.aws/prevent-delete"
TRUE: Final = {MARK: "true"}
BUCKETS: Final = Crd("s3.services.k8s.aws", "buckets", called="Bucket")
VAULTS: Final = Crd("s3.services.k8s.aws", "vaults", "Cluster", called="Vault")
COVERED: Final = "knell.test/door"
"""Label of the Namespaces that the webhook is asked about, so that it stands in the way of no other test."""


@dataclass(slots=True)
class Replica:
    """One process."""

    process: KnellProcess
    port: int

    def terminate(self) -> None:
        self.process.process.terminate()

    def end(self) -> int:
        return self.process.end()

    def kill(self) -> None:
        if self.process.process.poll() is None:
            self.process.process.kill()
        self.process.process.wait()


@dataclass(slots=True)
class ProtectionDoor:
    plane: ControlPlane
    kube: Kube
    relay: ReplicaRelay
    folder: Path
    home: str
    replicas: list[Replica] = field(default_factory=list)

    # ---- the webhook

    def config(self, port: int) -> Path:
        path = self.folder / f"webhook-{port}.yaml"
        webhook = {
            "enabled": True,
            "objects": True,
            "host": "127.0.0.1",
            "port": port,
            "url": self.relay.url,
            "namespaces": COVERED,
        }
        document = {
            "clusters": {"here": {"kubeconfig": str(self.plane.kubeconfig(self.folder / "admin")), "context": "local"}},
            "watch": {"namespace": self.home},
            "protection": {"policy": False, "webhook": webhook},
        }
        path.write_bytes(msgspec.yaml.encode(document))
        return path

    def settings(self) -> Settings:
        return load(self.config(9), {})

    def start(self) -> Replica:
        """Without Redis: nothing listens at its address."""
        (port,) = free_ports(1)
        redis = RedisSettings()
        process = KnellProcess(self.folder, redis, "--config", str(self.config(port)), "webhook")
        replica = Replica(process, port)
        self.replicas.append(replica)
        process.until_ready()
        self.relay.replicas.append(port)
        return replica

    def change(self, **fields: object) -> None:
        """Changes fields of all webhooks of the configuration, except what Knell itself keeps in it."""
        found: Any = self.kube.get(f"{CONFIGURATIONS}/{CONFIGURATION}")
        hooks = [{**one, **fields} for one in found["webhooks"]]
        self.kube.patch(f"{CONFIGURATIONS}/{CONFIGURATION}", {"webhooks": hooks})

    # ---- objects

    def namespace(self, annotations: Mapping[str, str] | None = None) -> str:
        name = f"t{uuid.uuid4().hex[:10]}"
        metadata = {"name": name, "annotations": dict(annotations or {}), "labels": {COVERED: ""}}
        self.kube.create("/api/v1/namespaces", {"metadata": metadata})
        return name

    def create(
        self, crd: Crd, namespace: str, name: str, annotations: Mapping[str, str] | None = None, /, **metadata: Any
    ) -> str:
        """Its path."""
        self.kube.create(crd.path(namespace), crd.body(name, annotations=dict(annotations or {}), **metadata))
        return crd.path(namespace, name)

    def bucket(
        self, namespace: str, name: str, annotations: Mapping[str, str] | None = None, /, **metadata: Any
    ) -> str:
        return self.create(BUCKETS, namespace, name, annotations, **metadata)

    def annotate(self, path: str, **annotations: str | None) -> None:
        self.kube.patch(path, {"metadata": {"annotations": annotations}})

    def delete(self, path: str, query: str = "") -> KubeResponse:
        return self.kube.request("DELETE", path + query)

    def exists(self, path: str) -> bool:
        return self.kube.get(path) is not None

    def until_gone(self, path: str) -> None:
        wait_until(f"{path} is gone", lambda: not self.exists(path))

    def events(self, namespace: str, name: str) -> dict[str, str]:
        """Notes by reason."""
        found: Any = self.kube.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return {one["reason"]: one["note"] for one in found["items"] if one["regarding"]["name"] == name}

    def until_event(self, namespace: str, name: str, reason: str) -> str:
        wait_until(f"{name} has an Event {reason}", lambda: reason in self.events(namespace, name))
        return self.events(namespace, name)[reason]

    def kubectl(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit code, output and error output, word for word."""
        config = self.plane.kubeconfig(self.folder / "kubectl")
        environment = {"KUBECONFIG": str(config), "HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [*self.plane.programs.kubectl, *words],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr


@contextmanager
def protection_door(plane: ControlPlane, folder: Path) -> Iterator[ProtectionDoor]:
    """One replica, and the API server asks it."""
    kube = Kube(plane.url, plane.token, plane.ca)
    home = f"knell-{uuid.uuid4().hex[:8]}"
    kube.create("/api/v1/namespaces", {"metadata": {"name": home}})
    for crd in (BUCKETS, VAULTS):
        # Tests of ACK leave one of that name.
        kube.uninstall(crd)
        kube.install(crd)
    with ReplicaRelay() as relay:
        door = ProtectionDoor(plane, kube, relay, folder, home)
        try:
            kube.create(CONFIGURATIONS, webhook_configuration(door.settings()))
            door.start()
            _until_asked(door)
            yield door
        finally:
            kube.request("DELETE", f"{CONFIGURATIONS}/{CONFIGURATION}")
            for replica in door.replicas:
                replica.kill()
            for crd in (BUCKETS, VAULTS):
                kube.uninstall(crd)


def _until_asked(door: ProtectionDoor) -> None:
    """The API server sees the configuration, and trusts the certificate in it."""
    probe = door.bucket(door.namespace(), "probe", TRUE)
    wait_until("the API server asks the webhook", lambda: door.delete(probe, "?dryRun=All").status == 403)
