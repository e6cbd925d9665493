"""Setup of the canary scenario: a cluster on AWS, a node on Azure, one source for each kind of kubeconfig, and Redis
behind sentinels. All traffic except that of Redis goes through gateways."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from service.contract.names import FINALIZER
from service.sources.karpenter_azure import CLUSTER_TAG, KARPENTER_AZURE, NODEPOOL_TAG
from standins.aws import AssumableRole as AwsRole
from standins.aws import AwsBehaviour, LocalAws
from standins.aws.builder import REGION, AwsBuilder
from standins.azure import GROUP, LocalAzure, Nic, ResourceGroup
from standins.azure import REGION as AZURE_REGION
from standins.kubernetes_api import EmbeddedApi
from standins.redis_servers import LocalRedis, LocalRedisSentinel, TlsFiles
from tests.api_servers import TestApi
from tests.capi import ROLE_IDENTITIES, STATIC_IDENTITIES
from tests.integration.aws_identities import own_credentials
from tests.karpenter import NODECLAIMS, KarpenterObjects
from tests.kube import Crd
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.canaries.credentials import Canaries
from tests.scenarios.canaries.gateway import Gateway, RefusingProxy
from tests.scenarios.canaries.issuer import Issuer
from tests.scenarios.canaries.kubeconfigs import KEYS, NOWHERE, WORKING, CanaryKubeconfigs, encoded, serving
from tests.switching_relay import SwitchingRelay
from tests.tls_files import make_tls_files

NODES: Final = "nodeclaims"
CLOUD: Final = "prod"
TENANT: Final = "444455556666"
NODE: Final = {CLUSTER_TAG: CLOUD, NODEPOOL_TAG: "default"}
KIND: Final = Crd("knell.test", "widgets")
MADE: Final = "made-tls"
GIVEN: Final = "given-tls"
"""Secrets of the webhook: Knell makes the key of the first, and can't use that of the second."""

INSIDE: Final = "inside"
"""The gateway through which a pod reaches the first cluster."""


class CanarySetup(AwsScenario):
    known: Canaries
    gateways: dict[str, Gateway]
    apis: dict[str, TestApi]
    tls_files: dict[str, TlsFiles]
    proxy: RefusingProxy
    ways: CanaryKubeconfigs
    karpenter: KarpenterObjects
    azure: LocalAzure
    server: LocalRedis
    """The Redis server that the sentinels name."""
    encrypted: SwitchingRelay
    """The way to it over TLS: the embedded server knows none."""

    def write(self, name: str, text: str) -> Path:
        return self.ways.write(name, text)

    def seen(self) -> set[str]:
        """Canaries that reached a gateway or the proxy, by name."""
        there = set().union(self.proxy.seen, *(gateway.seen for gateway in self.gateways.values()))
        return {name for name, word in self.known.all.items() if word in there}

    # ---- settings

    def declare(self) -> None:
        self.document["watch"]["namespace"] = "default"
        self.document["log"] = {"level": "debug", "format": "json"}
        self.document["redis"] |= self._redis()
        ways = {way: {"kubeconfig": path} for way, path in self.ways.files().items()}
        self.secret("way", config=self.ways.in_secret())
        self.document["clusters"] = {**ways, "secret": {"secret": f"{self.home}/way/config", "via": "token"}}
        for source in self.document["sources"].values():
            source["cluster"] = "token"
        for way in (*WORKING, *NOWHERE):
            self.document["sources"][f"by-{way}"] = {
                "resource": KIND.resource, "collector": "none", "cluster": way, "adopt_existing": True,
                "guard": {"enabled": False},
            }  # fmt: skip
        self.document["sources"][NODES] = {
            "resource": NODECLAIMS.resource, "collector": KARPENTER_AZURE, "cluster": "token", "mode": "observe",
            "guard": {"enabled": False},
        }  # fmt: skip
        nodes = {
            "subscription": self.karpenter.subscription, "resource_group": GROUP, "region": AZURE_REGION,
            "cluster": CLOUD,
        }  # fmt: skip
        self.document["azure"] = {
            "grace": "0s", "endpoint": self.gateways["azure"].url, "nodes": {NODES: [nodes]},
            "sweep": {"enabled": True, "every": "300ms", "age": "500ms"},
        }  # fmt: skip
        self.document["protection"] = {"cluster": "token", "webhook": webhook(MADE)}
        self.document["aws"] |= {"endpoint": self.gateways["aws"].url, "identity_namespace": self.home}

    def _redis(self) -> dict[str, object]:
        return {
            "mode": "sentinel", "sentinels": [str(one) for one in self.redis.sentinels],
            "sentinel_username": "watcher", "username": "somebody",
            "sentinel_password_file": str(self.write("sentinel-password", self.known["redis sentinel password"])),
            "password_file": str(self.write("redis-password", self.known["redis password"])),
        }  # fmt: skip

    # ---- objects

    def make(self, way: str, name: str) -> None:
        self.apis[way].kube.create(KIND.path("default"), KIND.body(name))

    def is_marked(self, way: str, name: str) -> bool:
        found = self.apis[way].kube.get(KIND.path("default", name))
        return found is not None and FINALIZER in found["metadata"].get("finalizers", ())

    def is_absent(self, way: str, name: str) -> bool:
        return self.apis[way].kube.get(KIND.path("default", name)) is None

    def remove(self, way: str, name: str) -> None:
        self.apis[way].kube.delete(KIND.path("default", name))

    def secret(self, name: str, **texts: str) -> None:
        data = {key: encoded(text) for key, text in texts.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        self.kube.create(f"/api/v1/namespaces/{self.home}/secrets", body)

    def identities(self) -> dict[str, dict[str, str]]:
        """A role with an external id, and static keys in a Secret."""
        self.secret(
            "static", AccessKeyID=f"AKIA{TENANT}", SecretAccessKey=self.known["aws static secret key"],
            SessionToken=self.known["aws static session token"],
        )  # fmt: skip
        role = {"roleARN": role_arn("cleaner"), "externalID": self.known["aws external id"]}
        anywhere: dict[str, object] = {"allowedNamespaces": {}}
        self.capi.identity(ROLE_IDENTITIES, "cleaner", {**role, **anywhere})
        self.capi.identity(STATIC_IDENTITIES, "keys", {"secretRef": "static", **anywhere})
        return {
            "role": {"kind": "AWSClusterRoleIdentity", "name": "cleaner"},
            "static": {"kind": "AWSClusterStaticIdentity", "name": "keys"},
            "own": {},
        }


def webhook(secret: str, **more: str) -> dict[str, object]:
    """Settings of a webhook that no API server calls."""
    address = {"host": "127.0.0.1", "port": 0, "url": "https://127.0.0.1:9"}
    return {"enabled": True, "secret": secret, **address, **more}


def role_arn(name: str) -> str:
    return f"arn:aws:iam::{TENANT}:role/{name}"


@contextlib.asynccontextmanager
async def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CanarySetup]:
    known, account = Canaries(), str(uuid.uuid4().int)[-12:]
    own_credentials(monkeypatch, folder, account)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", known["aws secret key"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", known["aws session token"])
    async with contextlib.AsyncExitStack() as stack:
        tls_files = await asyncio.to_thread(_papers, folder, known)
        redis = stack.enter_context(LocalRedisSentinel(replicas=0))
        _grant(redis, known)
        apis = {way: TestApi("embedded", stack.enter_context(EmbeddedApi())) for way in WORKING}
        aws = await stack.enter_async_context(LocalAws(AwsBehaviour()))
        azure = await stack.enter_async_context(LocalAzure())
        gateways = _gateways(known, apis, tls_files, account, aws.address, azure.address)
        for gateway in gateways.values():
            await stack.enter_async_context(gateway)
        for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{gateways['issuer'].url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", known["azure identity header"])
        builder = await stack.enter_async_context(AwsBuilder(aws.address, account=account, region=REGION))
        for api in apis.values():
            await asyncio.to_thread(api.kube.install, KIND)
        scene = CanarySetup(apis["token"], redis.settings(), aws, builder, folder)
        stack.push_async_callback(scene.aclose)
        scene.known, scene.gateways, scene.apis, scene.azure = known, gateways, apis, azure
        scene.server, scene.tls_files = redis.servers[0], tls_files
        relay = SwitchingRelay(scene.server.port, tls=serving(tls_files["redis"]))
        scene.encrypted = await stack.enter_async_context(relay)
        scene.proxy = await stack.enter_async_context(RefusingProxy(known))
        urls = {name: gateway.url for name, gateway in gateways.items()}
        scene.ways = CanaryKubeconfigs(folder, known, urls, tls_files, issuer=urls["issuer"], proxy=scene.proxy.address)
        await _create_objects(scene)
        scene.declare()
        yield scene


def _papers(folder: Path, known: Canaries) -> dict[str, TlsFiles]:
    """Each has an authority of its own; the key of the server is that of its clients, too."""
    keys = {"redis": "redis tls key", **{way: f"kubernetes {way}" for way in KEYS}}
    made: dict[str, TlsFiles] = {}
    for name in (*keys, "tls"):
        home = folder / f"tls_files-{name}"
        home.mkdir()
        # Programs trust the last one by the defaults of Python.
        made[name] = make_tls_files(home, strict=name == "tls")
        if name in keys:
            known.take_key(keys[name], made[name].key.read_text())
    return made


def _grant(redis: LocalRedisSentinel, known: Canaries) -> None:
    """Passwords for users of their own: the set-up itself goes on as the default user."""
    passwords = (f">{known['redis password']}", f">{known['redis password in the url']}")
    with redis.servers[0].admin() as admin:
        admin.execute_command("ACL", "SETUSER", "somebody", "on", *passwords, "~*", "&*", "+@all")
    for sentinel in redis.sentinels:
        with sentinel.admin() as admin:
            password = f">{known['redis sentinel password']}"
            admin.execute_command("ACL", "SETUSER", "watcher", "on", password, "~*", "&*", "+@all")


def _gateways(
    known: Canaries, apis: dict[str, TestApi], tls_files: dict[str, TlsFiles], account: str, aws: str, azure: str
) -> dict[str, Gateway]:
    plain = serving(tls_files["tls"], asks=False)
    issued = {"SecretAccessKey": known["aws issued secret key"], "SessionToken": known["aws issued session token"]}
    made: dict[str, Gateway] = {}
    for way, api in apis.items():
        tls, key = (serving(tls_files[way]), known[f"kubernetes {way}"]) if way in KEYS else (None, "")
        made[way] = Gateway(api.url, "kubernetes", known, authorization=f"Bearer {api.token}", tls=tls, key=key)
    first = apis["token"]
    return {
        **made,
        INSIDE: Gateway(first.url, "kubernetes", known, authorization=f"Bearer {first.token}", tls=plain),
        "aws": Gateway(aws, "aws", known, issued=issued),
        "azure": Gateway(azure, "azure", known),
        "issuer": Issuer(known, account),
        # Entra is asked over TLS only.
        "entra": Issuer(known, account, tls=plain),
    }


async def _create_objects(scene: CanarySetup) -> None:
    scene.karpenter = KarpenterObjects(scene.kube, str(uuid.uuid4()), GROUP)
    await scene.azure.declare(ResourceGroup(subscription=scene.karpenter.subscription))
    await asyncio.to_thread(scene.karpenter.settle)
    for number in range(2):
        name = f"aks-{scene.karpenter.name(str(number))}"
        await scene.azure.make(Nic(name=name, tags=NODE, subscription=scene.karpenter.subscription))
    await scene.begin()
    roles = {
        role_arn("cleaner"): AwsRole(external_id=scene.known["aws external id"]),
        role_arn("profile"): AwsRole(external_id=scene.known["aws profile external id"]),
    }
    await scene.aws.behave(roles=msgspec.to_builtins(roles))
