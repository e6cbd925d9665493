"""Fixtures for AWS clients: identities and Secrets on a real API server, the stand-in for AWS, and clients in between.
The test controls time; the stand-in's journal shows the calls."""

import base64
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.kubernetes import KubernetesClient, connect
from service.settings import ClusterSettings, Settings, SourceSettings
from service.sources.capa import AWS_CLUSTERS, CAPA
from standins.aws import AssumableRole, AwsBehaviour, AwsJournalEntry, LocalAws
from tests import capi
from tests.api_servers import TestApi
from tests.kube import Crd
from workers.collectors.capa.identities import CapaIdentities
from workers.handlers.source_clusters import SourceClusters
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.components import collector_of_source
from workers.providers.aws.errors import NoAccess
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsBudgets, CallScope

SOURCE = "clusters"
OWN = "111122223333"
TENANT = "444455556666"
OTHER = "777788889999"
ACCOUNTS = (OWN, TENANT, OTHER)
REGION = "eu-west-1"


class MovableClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class AwsIdentityFixture:
    """One namespace of one management cluster. Objects created here have names unique to the test."""

    def __init__(self, api: TestApi, aws: LocalAws, clock: MovableClock) -> None:
        self.api, self.kube, self.aws, self.clock = api, api.kube, aws, clock
        self.namespace, self.secrets = api.namespace(), api.namespace()
        self._capi = capi.CapiObjects(self.kube, self.namespace)
        self._since = 0
        self.reach: SdkClients
        self.cluster: KubernetesClient

    # ---- identities

    def role(self, arn: str, *, source: str = "", allowed: object = None, **spec: object) -> str:
        """An AWSClusterRoleIdentity that the fixture's namespace may use unless `allowed` says otherwise."""
        kind, _, name = source.partition("/")
        if source:
            spec["sourceIdentityRef"] = {"kind": kind, "name": name}
        return self._identity(capi.ROLE_IDENTITIES, {"roleARN": arn, **spec}, allowed)

    def static(self, account: str, *, allowed: object = None) -> str:
        name = self.secret(AccessKeyID=f"AKIA{account}", SecretAccessKey="static-secret")
        return self._identity(capi.STATIC_IDENTITIES, {"secretRef": name}, allowed)

    def controller(self, allowed: object) -> str:
        """There is one per cluster."""
        path = capi.CONTROLLER_IDENTITIES.path(name="default")
        if self.kube.get(path) is not None:
            self.kube.delete(path)
        self._capi.identity(capi.CONTROLLER_IDENTITIES, "default", {"allowedNamespaces": allowed})
        return "AWSClusterControllerIdentity/default"

    def secret(self, **texts: str) -> str:
        name = f"s{uuid.uuid4().hex[:8]}"
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": _encoded(texts)}
        self.kube.create(f"/api/v1/namespaces/{self.secrets}/secrets", body)
        return name

    def change_secret(self, name: str, **texts: str) -> None:
        self.kube.patch(f"/api/v1/namespaces/{self.secrets}/secrets/{name}", {"data": _encoded(texts)})

    def change(self, called: str, **spec: object) -> None:
        self.kube.patch(self._path(called), {"spec": spec})

    def spec(self, called: str) -> Any:
        found = self.kube.get(self._path(called))
        return found and found["spec"]

    def remove(self, called: str) -> None:
        self.kube.delete(self._path(called))

    def label(self, **labels: str | None) -> None:
        self.kube.patch(f"/api/v1/namespaces/{self.namespace}", {"metadata": {"labels": labels}})

    def _identity(self, crd: Crd, spec: dict[str, object], allowed: object) -> str:
        name = f"i{uuid.uuid4().hex[:8]}"
        spec["allowedNamespaces"] = {"list": [self.namespace]} if allowed is None else allowed
        self._capi.identity(crd, name, spec)
        return f"{crd.kind}/{name}"

    def _path(self, called: str) -> str:
        kind, _, name = called.partition("/")
        return next(crd for crd in capi.KINDS if crd.kind == kind).path(name=name)

    # ---- AWS

    def whose(self, identity: str = "", region: str = REGION) -> CallScope:
        return CallScope(source=SOURCE, namespace=self.namespace, region=region, identity=identity)

    async def trusting(self, **roles: AssumableRole) -> None:
        """Allows only these roles to be assumed."""
        await self.aws.behave(roles={arn(TENANT, name): role for name, role in roles.items()})

    async def asked(self, action: str = "") -> Sequence[AwsJournalEntry]:
        """Calls since the test began, in its accounts: other tests of the process share the stand-in."""
        return [one for one in await self.aws.requests(action, self._since) if one.account in ACCOUNTS]

    async def begin(self) -> None:
        as_ever = msgspec.to_builtins(AwsBehaviour(buckets=False))
        await self.aws.behave(**as_ever)
        await self.aws.set_rate(10.0)
        self._since = len(await self.aws.journal())


@asynccontextmanager
async def aws_identity_fixture(
    api: TestApi, aws: LocalAws, folder: Path, *, account: str | None = None, quota: AwsBudgets | None = None
) -> AsyncIterator[AwsIdentityFixture]:
    identities = AwsIdentityFixture(api, aws, MovableClock())
    await identities.begin()
    way: ClusterSettings = api.settings(folder)
    settings = Settings(
        clusters={"local": way}, sources={SOURCE: SourceSettings(resource=AWS_CLUSTERS, collector="capa")}
    )

    async def remembered() -> dict[str, str]:
        return {}

    async with await connect("local", way) as identities.cluster:
        places = SourceClusters(settings, {"local": identities.cluster}, remembered)
        reach = SdkClients(
            AwsLimits(KINDS), partial(collector_of_source, settings), endpoint=aws.address, account=account,
            quota=quota, clock=identities.clock,
        )  # fmt: skip
        resolver = CapaIdentities(
            places, reach.sessions, reach.own_credentials, namespace=identities.secrets, clock=identities.clock
        )
        reach.add_resolver(CAPA, resolver)
        try:
            async with reach as identities.reach:
                yield identities
        finally:
            await places.aclose()


async def refusal(identities: AwsIdentityFixture, identity: str = "", account: str = "") -> str:
    """Why the identity gives no access."""
    with pytest.raises(NoAccess) as refused:
        await identities.reach.client(identities.whose(identity), account=account)
    return str(refused.value)


def own_credentials(monkeypatch: pytest.MonkeyPatch, folder: Path, account: str | None = OWN) -> None:
    """Credentials of this process, and none of the machine's."""
    given = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_")
    for name in [name for name in os.environ if name.startswith(given)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "aws-credentials"))
    if account is None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIA{account}")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")


def arn(account: str, name: str, partition: str = "aws") -> str:
    return f"arn:{partition}:iam::{account}:role/{name}"


def _encoded(texts: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
