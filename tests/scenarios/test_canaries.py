"""A canary in every credential there is: none shows in Redis, logs, metrics, Events, conditions or command output.
First everything works, then every server answers with errors that repeat the request, credentials included."""

import asyncio
import base64
import contextlib
import os
import secrets
import stat
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import redis

from service.contract.azure import CLUSTER_TAG, KARPENTER_AZURE, NODEPOOL_TAG
from service.contract.names import FINALIZER
from service.local.api import EmbeddedApi
from service.local.aws import Behaviour, LocalAws
from service.local.aws import Role as AwsRole
from service.local.aws.tags import by_cloud_provider
from service.local.aws.world import REGION, World
from service.local.azure import GROUP, Group, LocalAzure, Nic, id_of
from service.local.azure import REGION as AZURE_REGION
from service.local.servers import Server
from service.stream.views.jobs import list_jobs
from tests.capi import AWS_CLUSTERS, ROLE_IDENTITIES, STATIC_IDENTITIES
from tests.clusters import TestApi
from tests.integration.aws_access import own_credentials
from tests.integration.operating import invoke
from tests.karpenter import NODECLAIMS, Karpenter
from tests.kube import Crd
from tests.scenarios import canary_search
from tests.scenarios.aws.stage import Stage
from tests.scenarios.canary_gateway import Gateway, RefusingProxy, forms

NODES: Final = "nodeclaims"
CLOUD: Final = "prod"
TENANT: Final = "444455556666"
WAYS: Final = ("token", "token-file", "password", "plugin", "secret", "proxy", "client-key")
"""In which a kubeconfig may hold a credential; the last two lead nowhere."""
WORKING: Final = WAYS[:5]
"""Each leads to a cluster of its own."""
NODE: Final = {CLUSTER_TAG: CLOUD, NODEPOOL_TAG: "default"}
KIND: Final = Crd("knell.test", "widgets")


class Canaries:
    """One word for each credential, made for this run. They have no form that any pattern knows."""

    def __init__(self, *names: str) -> None:
        self.all = {name: f"canary{number:02}{secrets.token_hex(12)}" for number, name in enumerate(names)}

    def __getitem__(self, name: str) -> str:
        return self.all[name]


def canaries() -> Canaries:
    ways = (f"kubernetes {way}" for way in WAYS)
    return Canaries(
        "redis password", "redis password in the url", "redis wrong password", *ways, "aws secret key",
        "aws session token", "aws issued secret key", "aws issued session token", "aws static secret key",
        "aws external id", "aws web identity token", "azure identity header", "azure token", "azure client secret",
        "unknown setting",
    )  # fmt: skip


class Told:
    """What commands have shown, by how they were called."""

    def __init__(self) -> None:
        self.places: list[tuple[str, bytes]] = []

    async def ask(self, variables: Mapping[str, str], *words: str, code: int | None = 0) -> str:
        answer = await asyncio.to_thread(invoke, variables, *words)
        self.places.append((f"`knell {' '.join(words)}`", f"{answer.out}\n{answer.err}".encode()))
        assert code is None or answer.code == code, answer
        return answer.out


class Scene(Stage):
    """A cluster on AWS, a node on Azure, and one source for each way to a cluster; all traffic goes through
    gateways."""

    known: Canaries
    gateways: dict[str, Gateway]
    apis: dict[str, TestApi]
    proxy: RefusingProxy
    karpenter: Karpenter
    azure: LocalAzure
    secret_file: Path

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def kubeconfig(self, way: str, user: Mapping[str, Any], server: str = "", **cluster: str) -> str:
        entry = {"server": server or self.gateways[way].url, **cluster}
        return msgspec.json.encode(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": entry}], "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        ).decode()  # fmt: skip

    def clusters(self) -> dict[str, dict[str, str]]:
        """The ways, as settings name them."""
        word = {way: self.known[f"kubernetes {way}"] for way in WAYS}
        plugin = self.write("plugin", "#!/bin/sh\n" + _plugin(word["plugin"]), stat.S_IRWXU)
        rotating = self.write("token", word["token-file"])
        key = f"-----BEGIN PRIVATE KEY-----\n{word['client-key']}\n-----END PRIVATE KEY-----\n"
        texts = {
            "token": self.kubeconfig("token", {"token": word["token"]}),
            "token-file": self.kubeconfig("token-file", {"tokenFile": str(rotating)}),
            "password": self.kubeconfig("password", {"username": "somebody", "password": word["password"]}),
            "plugin": self.kubeconfig("plugin", {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never",
            }}),
            "proxy": self.kubeconfig("token", {}, **{"proxy-url": f"http://somebody:{word['proxy']}@{self.proxy.address}"}),
            "client-key": self.kubeconfig(
                "", {"client-certificate-data": _encoded(key), "client-key-data": _encoded(key)}, "https://127.0.0.1:9"
            ),
        }  # fmt: skip
        ways = {way: {"kubeconfig": str(self.write(f"kubeconfig-{way}", text))} for way, text in texts.items()}
        held = {"config": _encoded(self.kubeconfig("secret", {"token": word["secret"]}))}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "way"}, "data": held}
        self.kube.create(f"/api/v1/namespaces/{self.home}/secrets", body)
        return {**ways, "secret": {"secret": f"{self.home}/way/config", "via": "token"}}

    def declare(self) -> None:
        """The settings."""
        self.document["watch"]["namespace"] = "default"
        self.document["log"] = {"level": "debug", "format": "json"}
        self.document["redis"] |= {"username": "somebody", "password_file": str(self.secret_file)}
        self.document["clusters"] = self.clusters()
        for source in self.document["sources"].values():
            source["cluster"] = "token"
        for way in WAYS:
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
        self.document["aws"] |= {"endpoint": self.gateways["aws"].url, "identity_namespace": self.home}

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

    def identities(self) -> dict[str, dict[str, str]]:
        """A role with an external id, and static keys in a Secret."""
        static = {"AccessKeyID": f"AKIA{TENANT}", "SecretAccessKey": self.known["aws static secret key"]}
        data = {key: _encoded(text) for key, text in static.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "static"}, "data": data}
        self.kube.create(f"/api/v1/namespaces/{self.home}/secrets", body)
        role = {"roleARN": f"arn:aws:iam::{TENANT}:role/cleaner", "externalID": self.known["aws external id"]}
        anywhere: dict[str, object] = {"allowedNamespaces": {}}
        self.capi.identity(ROLE_IDENTITIES, "cleaner", {**role, **anywhere})
        self.capi.identity(STATIC_IDENTITIES, "keys", {"secretRef": "static", **anywhere})
        return {
            "role": {"kind": "AWSClusterRoleIdentity", "name": "cleaner"},
            "static": {"kind": "AWSClusterStaticIdentity", "name": "keys"},
            "own": {},
        }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _plugin(token: str) -> str:
    said = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": token}}
    return f"echo '{msgspec.json.encode(said).decode()}'\n"


@contextlib.asynccontextmanager
async def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    known = canaries()
    account = str(uuid.uuid4().int)[-12:]
    own_credentials(monkeypatch, folder, account)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", known["aws secret key"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", known["aws session token"])
    words = known.all.values()
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(Server(appendonly=False))
        passwords = (f">{known['redis password']}", f">{known['redis password in the url']}")
        with server.admin() as admin:
            admin.execute_command("ACL", "SETUSER", "somebody", "on", *passwords, "~*", "&*", "+@all")
        apis = {way: TestApi("embedded", stack.enter_context(EmbeddedApi())) for way in WORKING}
        aws = await stack.enter_async_context(LocalAws(Behaviour()))
        azure = await stack.enter_async_context(LocalAzure())
        issued = {"SecretAccessKey": known["aws issued secret key"], "SessionToken": known["aws issued session token"]}
        gateways = {
            **{way: Gateway(api.url, "kubernetes", words, f"Bearer {api.token}") for way, api in apis.items()},
            "aws": Gateway(aws.address, "aws", words, keys=issued),
            "azure": Gateway(azure.address, "azure", words, token=known["azure token"]),
        }
        for gateway in gateways.values():
            await stack.enter_async_context(gateway)
        for name in [name for name in os.environ if name.startswith(("AZURE_", "IDENTITY_", "MSI_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{gateways['azure'].url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", known["azure identity header"])
        world = await stack.enter_async_context(World(aws.address, account=account, region=REGION))
        for api in apis.values():
            await asyncio.to_thread(api.kube.install, KIND)
        scene = Scene(apis["token"], server.settings(), aws, world, folder)
        stack.push_async_callback(scene.aclose)
        scene.known, scene.gateways, scene.apis, scene.azure = known, gateways, apis, azure
        scene.proxy = await stack.enter_async_context(RefusingProxy(words))
        scene.secret_file = scene.write("redis-password", known["redis password"])
        scene.karpenter = Karpenter(scene.kube, str(uuid.uuid4()), GROUP)
        await azure.declare(Group(subscription=scene.karpenter.subscription))
        await asyncio.to_thread(scene.karpenter.settle)
        for number in range(2):
            name = f"aks-{scene.karpenter.name(str(number))}"
            await azure.make(Nic(name=name, tags=NODE, subscription=scene.karpenter.subscription))
        await scene.begin()
        roles = {f"arn:aws:iam::{TENANT}:role/cleaner": AwsRole(external_id=known["aws external id"])}
        await aws.behave(roles=msgspec.to_builtins(roles))
        scene.declare()
        yield scene


async def works(scene: Scene) -> None:
    """Every way that leads somewhere is gone, and each credential has been used."""
    for way in WORKING:
        await asyncio.to_thread(scene.make, way, "first")
    for way in WORKING:
        await scene.until(f"{way}: first is marked", partial(scene.is_marked, way, "first"))
        await asyncio.to_thread(scene.remove, way, "first")
    for way in WORKING:
        await scene.until(f"{way}: first is released", partial(scene.is_absent, way, "first"))
    for name, identity in scene.identities().items():
        vpc = await scene.world.vpc()
        if not identity:
            await scene.world.balancer(vpc, by_cloud_provider(name, "default/web"), of="net")
        infra = await scene.unmanaged(name, vpc, identity=identity or None)
        await scene.until_marked(infra)
        await scene.delete(infra)
        if not identity:
            await scene.until_released(infra)
        else:
            # Its VPC is not in the tenant's account.
            await scene.until_told(infra, "account")
    for gateway, names in (
        *((way, [f"kubernetes {way}"]) for way in WORKING),
        ("aws", ["aws session token", "aws issued session token", "aws external id"]),
        ("azure", ["azure identity header", "azure token"]),
    ):
        wanted = {scene.known[name] for name in names}
        await scene.until(f"{gateway} has seen all", partial(wanted.issubset, scene.gateways[gateway].seen))
    await scene.until("the proxy was asked", lambda: scene.known["kubernetes proxy"] in scene.proxy.seen)


async def stuck(scene: Scene) -> None:
    """A job on each cloud that is refused, and tried again and again."""
    vpc = await scene.world.vpc()
    balancer = await scene.world.balancer(vpc, by_cloud_provider("stuck", "default/web"), of="net")
    await scene.world.protect(balancer)
    infra = await scene.unmanaged("stuck", vpc)
    await scene.until_marked(infra)
    await scene.delete(infra)
    name = f"aks-{scene.karpenter.name('locked')}"
    await scene.azure.behave(locks=(id_of(scene.karpenter.subscription, GROUP, "nic", name),))
    await scene.azure.make(Nic(name=name, tags=NODE, subscription=scene.karpenter.subscription))
    await until_jobs_say(scene, "protect", "ScopeLocked")


async def until_jobs_say(scene: Scene, *words: str) -> None:
    async def said() -> bool:
        reasons = [job.reason for job in (await list_jobs(scene.installation)).jobs]
        return all(any(word in reason for reason in reasons) for word in words)

    await scene.until(f"jobs say {words}", said)


async def fails(scene: Scene) -> None:
    """Every server answers with what it was sent."""
    # First the clouds alone: what they say gets into jobs, Events and conditions.
    for status in (400, 500):
        vpc = await scene.world.vpc()
        infra = await scene.unmanaged(f"late-{status}", vpc)
        await scene.until_marked(infra)
        async with answering(scene, status, "aws", "azure"):
            await scene.delete(infra)
            if status == 400:
                await until_jobs_say(scene, "ValidationError", "InternalServerError")
        await scene.until_told(infra, "CleanupHeld")
    # What is refused for good is not asked again and again, which would only take time.
    async with answering(scene, 401, "aws", "azure"):
        pass
    for status in (401, 500):
        async with answering(scene, status, *WORKING):
            pass


@contextlib.asynccontextmanager
async def answering(scene: Scene, status: int, *names: str) -> AsyncIterator[None]:
    """These gateways repeat what they are sent from now on; it ends when each has done so."""
    for name in names:
        scene.gateways[name].echo, scene.gateways[name].echoed = status, 0
    yield
    for name in names:
        await scene.until(f"{name} has answered {status}", partial(getattr, scene.gateways[name], "echoed"))


def planning(scene: Scene) -> tuple[str, ...]:
    return "plan", f"{AWS_CLUSTERS.resource}/late-400", "-n", scene.namespace, "--cluster", "token"


def pictures(scene: Scene, deletions: Sequence[str], jobs: Sequence[str]) -> list[tuple[str, ...]]:
    """Everything that an operator may look at."""
    looks: list[tuple[str, ...]] = [
        ("status",), ("jobs", "list"), ("deletions", "list"), ("held", "list"), ("sources", "list"),
        ("clusters", "list"), ("guard", "status"), ("doctor",), planning(scene),
        ("sweep", "--dry-run"),
        *(("deletions", "show", one) for one in deletions), *(("jobs", "show", one) for one in jobs),
    ]  # fmt: skip
    return [(*look, "--output", form) for look in looks for form in ("table", "json")]


async def looked_at(scene: Scene, told: Told) -> None:
    config = str(scene.config())
    listed = await told.ask({}, "--config", config, "deletions", "list", "--output", "json")
    deletions = [one["id"] for one in msgspec.json.decode(listed)["deletions"]]
    listed = await told.ask({}, "--config", config, "jobs", "list", "--output", "json")
    jobs = [one["id"] for one in msgspec.json.decode(listed)["jobs"]]
    assert deletions
    assert jobs
    for words in pictures(scene, deletions[:3], jobs[:3]):
        await told.ask({}, "--config", config, *words, code=None)


def _url(scene: Scene, name: str) -> str:
    return f"redis://somebody:{scene.known[name]}@127.0.0.1:{scene.redis.url.port}/0"


async def goes_wrong(scene: Scene, told: Told) -> None:
    """Wrong settings, refused logins, and the credentials that only other environments have."""
    alone = {**scene.document, "redis": {"prefix": scene.redis.prefix}}
    config = scene.write("alone.yaml", msgspec.yaml.encode(alone).decode())
    words = ("--config", str(config))
    fine = {"KNELL_REDIS_URL": _url(scene, "redis password in the url")}
    await told.ask(fine, *words, "status")
    await told.ask({"KNELL_REDIS_URL": _url(scene, "redis wrong password")}, *words, "status", code=None)
    broken = _url(scene, "redis wrong password") + "?timeout=1"
    await told.ask({"KNELL_REDIS_URL": broken}, *words, "status", code=None)
    strange = {**scene.document, "redis": {"password": scene.known["unknown setting"]}}
    config = scene.write("strange.yaml", msgspec.yaml.encode(strange).decode())
    await told.ask({}, "--config", str(config), "status", code=None)
    token = scene.write("web-identity", scene.known["aws web identity token"])
    web = {
        "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "",
        "AWS_ROLE_ARN": f"arn:aws:iam::{TENANT}:role/web", "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL_STS": scene.gateways["aws"].url,
    }  # fmt: skip
    client = {
        "AZURE_TENANT_ID": str(uuid.uuid4()), "AZURE_CLIENT_ID": str(uuid.uuid4()),
        "AZURE_CLIENT_SECRET": scene.known["azure client secret"], "AZURE_AUTHORITY_HOST": "https://127.0.0.1:9",
        "IDENTITY_ENDPOINT": "", "IDENTITY_HEADER": "",
    }  # fmt: skip
    for way in WORKING:
        scene.gateways[way].echo = 0
    await told.ask({**fine, **web}, *words, *planning(scene), code=None)
    await told.ask({**fine, **client}, *words, "sweep", "--dry-run", code=None)
    assert scene.known["aws web identity token"] in scene.gateways["aws"].seen


@pytest.mark.long  # forty commands, and some of them wait for what does not answer
@pytest.mark.invariant(12)
async def test_no_canary_of_any_credential_shows_in_anything_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch) as scene:
        replica, told = scene.launch("run"), Told()
        await works(scene)
        await stuck(scene)
        await fails(scene)
        surface = [
            (f"GET {path}", (await asyncio.to_thread(replica.process.get, path))[1].encode())
            for path in ("/metrics", "/readyz", "/healthz", "/livez")
        ]
        await looked_at(scene, told)
        await goes_wrong(scene, told)
        await replica.stop()
        with redis.Redis(port=scene.redis.url.port or 0, protocol=2) as client:
            stored = await asyncio.to_thread(lambda: list(canary_search.in_redis(client)))
        paths = (NODECLAIMS.path(), AWS_CLUSTERS.path(scene.namespace), KIND.path())
        objects = [one for api in scene.apis.values() for one in canary_search.in_cluster(api.kube, *paths)]
        places = [*stored, *objects, *surface, *told.places, ("the log of `knell run`", replica.log.encode())]
        assert {where.split()[0] for where, _ in places} >= {"Redis", "GET", "`knell", "the"}
        assert any("events" in where for where, _ in objects)
        assert canary_search.leaks(places, forms(scene.known.all)) == []
