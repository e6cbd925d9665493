"""Replicas of the webhook as far as their certificates go: stores that share a Secret and a webhook configuration on a
real API server, with a clock that the test moves."""

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from service.admission.certificate_rotation import RotationTimes, StoredCertificates, decode_secret
from service.admission.certificate_store import CertificateStore
from service.admission.names import CONFIGURATION, DEFINITIONS_WEBHOOK, NAMESPACES_WEBHOOK, OBJECTS_WEBHOOK
from service.kubernetes import SECRETS, KubernetesClient, connect
from service.settings import ClusterSettings, Settings, WatchSettings
from service.settings.protection import ProtectionSettings, WebhookSettings
from tests.api_servers import TestApi
from tests.recording_proxy import RecordingProxy
from tests.tls_handshakes import presented

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIGURATION_PATH: Final = f"{CONFIGURATIONS}/{CONFIGURATION}"
WEBHOOKS: Final = (NAMESPACES_WEBHOOK, DEFINITIONS_WEBHOOK, OBJECTS_WEBHOOK)
HOST: Final = "127.0.0.1"
URL: Final = f"https://{HOST}:9"
TIMES: Final = RotationTimes()


class MovedClock:
    """Stands still until the test moves it. It starts at the present, because TLS clients use the machine's clock."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, by: timedelta) -> None:
        self.now += by


class CertificateReplicas:
    """Makes replicas, and sees what they share."""

    def __init__(self, api: TestApi, cluster: KubernetesClient, webhook: WebhookSettings) -> None:
        self.api, self.cluster = api, cluster
        self.clock = MovedClock()
        self.namespace = api.namespace()
        self.webhook = webhook
        self.secret_path = SECRETS.path(self.namespace, webhook.secret)

    def replica(
        self,
        via: KubernetesClient | None = None,
        *,
        times: RotationTimes = TIMES,
        clock: Callable[[], datetime] | None = None,
        webhook: WebhookSettings | None = None,
    ) -> CertificateStore:
        """As a process that has just started; it has read nothing yet."""
        settings = Settings(
            watch=WatchSettings(namespace=self.namespace),
            protection=ProtectionSettings(webhook=webhook or self.webhook),
        )
        return CertificateStore(settings, via or self.cluster, clock=clock or self.clock, times=times)

    async def prepared(self) -> CertificateStore:
        made = self.replica()
        await made.prepare()
        return made

    def register(self, **clients: str) -> None:
        """Our webhooks, and one of another program, with these addresses by the first word of their names.
        By default they are asked about nothing. With clients, about each deletion of a ConfigMap in the Namespace."""
        rule = {"apiGroups": [""] if clients else ["nothing.test"], "apiVersions": ["v1"], "scope": "*"}
        rule |= {"operations": ["DELETE"], "resources": ["configmaps"]}
        hooks = [
            {
                "name": name,
                "clientConfig": {"url": clients.get(name.partition(".")[0], f"{URL}/protection")},
                "rules": [rule if name in WEBHOOKS else {**rule, "apiGroups": ["nothing.test"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                "sideEffects": "NoneOnDryRun",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
            }
            for name in (NAMESPACES_WEBHOOK, "other.example.com", DEFINITIONS_WEBHOOK, OBJECTS_WEBHOOK)
        ]
        self.api.kube.create(
            CONFIGURATIONS,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": CONFIGURATION, "labels": {"app": "knell"}},
                "webhooks": hooks,
            },
        )

    def configuration(self) -> dict[str, Any]:
        found = self.api.kube.get(CONFIGURATION_PATH)
        assert found is not None
        return dict(found)

    def bundle(self) -> bytes:
        """What all our webhooks have."""
        (bundle,) = {one["clientConfig"].get("caBundle") for one in self._ours()}
        return base64.b64decode(bundle or "")

    def overwrite_bundle(self, bundle: bytes) -> None:
        """As another program does."""
        value = base64.b64encode(bundle).decode()
        hooks = self.configuration()["webhooks"]
        patch = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value}
            for index, one in enumerate(hooks)
            if one["name"] in WEBHOOKS
        ]
        self.api.kube.patch(CONFIGURATION_PATH, patch, "json")

    def stored(self) -> StoredCertificates:
        found = self.api.kube.request("GET", self.secret_path).body
        return decode_secret(msgspec.json.encode(found))

    def write_secret(self, **values: bytes | None) -> None:
        """By a person: keys with _ for a dot; None removes one."""
        data = {
            key.replace("_", "."): None if value is None else base64.b64encode(value).decode()
            for key, value in values.items()
        }
        if self.api.kube.get(self.secret_path) is not None:
            self.api.kube.patch(self.secret_path, {"data": data})
            return
        metadata = {"name": self.webhook.secret}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        self.api.kube.create(SECRETS.path(self.namespace), body)

    def trusts(self, *replicas: CertificateStore) -> bool:
        """A client with the bundle of the configuration trusts what these serve."""
        return all(presented(one.context, self.bundle(), HOST) for one in replicas)

    def _ours(self) -> list[Any]:
        return [one for one in self.configuration()["webhooks"] if one["name"] in WEBHOOKS]


@contextlib.contextmanager
def replicas_on(
    api: TestApi, cluster: KubernetesClient, webhook: WebhookSettings, *, registered: bool = True
) -> Iterator[CertificateReplicas]:
    made = CertificateReplicas(api, cluster, webhook)
    if registered:
        made.register()
    try:
        yield made
    finally:
        api.kube.request("DELETE", CONFIGURATION_PATH)


@pytest.fixture
def replicas(api: TestApi, cluster: KubernetesClient) -> Iterator[CertificateReplicas]:
    with replicas_on(api, cluster, WebhookSettings(enabled=True, url=URL)) as made:
        yield made


@contextlib.asynccontextmanager
async def through_proxy(api: TestApi, folder: Path) -> AsyncIterator[tuple[RecordingProxy, KubernetesClient]]:
    """A client whose requests the test can refuse or delay."""
    async with RecordingProxy(api) as proxy:
        settings = ClusterSettings(kubeconfig=proxy.kubeconfig(folder / "proxy.kubeconfig"), context="local")
        async with await connect("test", settings) as client:
            yield proxy, client
