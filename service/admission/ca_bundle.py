"""Bundle of CAs in the webhook configuration: reads it, and replaces it in our webhooks without touching anything else.

Read the configuration before the Secret that the bundle is made from. A patch is refused if the configuration has
changed since; so a bundle of an older Secret can't overwrite one that another replica has made of a newer Secret."""

import base64
import binascii
from typing import Any, Final

import msgspec

from service.admission.names import CONFIGURATION, DEFINITIONS_WEBHOOK, NAMESPACES_WEBHOOK, OBJECTS_WEBHOOK
from service.kubernetes import KubeObject, KubernetesClient, ServedResource
from service.kubernetes.errors import Conflict, NotFound, Unreadable

CONFIGURATIONS: Final = ServedResource(
    resource="validatingwebhookconfigurations.admissionregistration.k8s.io",
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    namespaced=False,
    status=False,
)
_OURS: Final = (NAMESPACES_WEBHOOK, DEFINITIONS_WEBHOOK, OBJECTS_WEBHOOK)


class _ClientConfig(msgspec.Struct):
    bundle: str = msgspec.field(default="", name="caBundle")


class _RegisteredWebhook(msgspec.Struct):
    name: str
    client: _ClientConfig = msgspec.field(default_factory=_ClientConfig, name="clientConfig")


class _RegisteredWebhooks(msgspec.Struct):
    webhooks: list[_RegisteredWebhook] | None = None


class RegisteredBundles(msgspec.Struct, frozen=True):
    """The bundles of our webhooks, by their index in the configuration."""

    configuration: KubeObject
    bundles: dict[int, bytes]

    @property
    def together(self) -> bytes:
        return b"\n".join(self.bundles.values())

    def all_have(self, authority: bytes) -> bool:
        return all(authority in bundle for bundle in self.bundles.values())


async def read_bundles(cluster: KubernetesClient) -> RegisteredBundles | None:
    """None if there is no configuration, or none with our webhooks. Raises ClusterError."""
    found = await cluster.get(CONFIGURATIONS, "", CONFIGURATION)
    if found is None:
        return None
    try:
        webhooks = msgspec.json.decode(found.raw, type=_RegisteredWebhooks).webhooks or []
    except msgspec.DecodeError as error:
        raise Unreadable(f"{CONFIGURATIONS.kind} {CONFIGURATION} can't be decoded: {error}") from None
    bundles = {index: _decoded(one.client.bundle) for index, one in enumerate(webhooks) if one.name in _OURS}
    return RegisteredBundles(found, bundles) if bundles else None


async def write_bundle(cluster: KubernetesClient, registered: RegisteredBundles, bundle: bytes) -> bool:
    """Whether anything had to be changed. Raises Conflict if the configuration has changed or gone since it was
    read."""
    different = [index for index, known in registered.bundles.items() if known != bundle]
    if not different:
        return False
    value = base64.b64encode(bundle).decode()
    version = registered.configuration.resource_version
    patch: list[dict[str, Any]] = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]
    patch += [{"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value} for index in different]
    try:
        await cluster.patch(CONFIGURATIONS, "", CONFIGURATION, patch)
    except NotFound as error:
        raise Conflict(str(error)) from None
    return True


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""
