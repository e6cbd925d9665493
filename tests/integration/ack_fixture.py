"""Fixture for the collector of ACK's objects: objects, Namespaces and ACK's maps on an API server, accounts in the
stand-in for AWS, and the collector between them. The kinds of resource are stand-ins: a plan only names them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from service.contract import Hold, Plan, Target
from service.contract.kept import NOTHING_ABANDONED, KeepDecision
from service.kubernetes import KubeObject, KubernetesClient, connect
from service.settings import Settings, SourceSettings
from service.sources.ack import ACCOUNT_MAP, ACK, TEAM_MAP, AckSettings
from service.sources.ack_objects import recognise_ack_object
from service.sources.aws import AwsAccess
from standins.aws import AssumableRole, AwsBehaviour, LocalAws
from tests.ack import BUCKETS, QUEUES, SELECTORS, arn_of_bucket, body, encoded, status
from tests.api_servers import TestApi
from tests.integration.aws_identities import OWN, REGION, TENANT
from tests.kube import Crd
from workers.collectors.ack.claim import AckClaim
from workers.collectors.ack.collector import AckCollector
from workers.collectors.ack.components import ack_components
from workers.handlers.collector import ObjectFacts, ObjectRef
from workers.handlers.kept_resources import KeepRequest, NoKeptRecords
from workers.handlers.source_clusters import SourceClusters
from workers.providers.aws.claims import ClaimRegistry
from workers.providers.aws.client.clients import SdkClients
from workers.providers.aws.components import AwsProvider, collector_of_source
from workers.providers.aws.kinds.declaration import AwsKind
from workers.providers.aws.kinds.elastic_ips import ELASTIC_IP
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import CallScope

ROLE = f"arn:aws:iam::{TENANT}:role/ack"
SOURCES = {"buckets": BUCKETS, "queues": QUEUES}


def any_kind(name: str) -> AwsKind:
    """Reads and removes elastic IPs, whatever it is called."""
    return msgspec.structs.replace(ELASTIC_IP, name=name)


class KeptDecisions(NoKeptRecords):
    """Decisions that a test makes."""

    def __init__(self) -> None:
        self.made: list[KeepDecision] = []

    async def decisions(self, place: str, name: str) -> Sequence[KeepDecision]:
        return [one for one in self.made if (one.place, one.name) == (place, name)]


class AckContext:
    """The Context of the collector."""

    budgets = guard_check = None
    patience: timedelta | None = None

    def __init__(self, settings: Settings, places: SourceClusters, kept: KeptDecisions) -> None:
        self.settings, self.source_clusters, self.kept_records = settings, places, kept

    async def provider(self, opened: Any) -> Any:
        raise AssertionError(f"{opened} is not opened")


class AckFixture:
    """One Namespace, and one for ACK's maps. Names are the test's own, for objects of all tests are compared."""

    cluster: KubernetesClient
    collector: AckCollector
    clients: SdkClients
    claims: ClaimRegistry

    def __init__(self, api: TestApi, aws: LocalAws) -> None:
        self.api, self.kube, self.aws = api, api.kube, aws
        self.namespace, self.system = api.namespace(), api.namespace()
        self.kept = KeptDecisions()
        self._prefix = f"b{uuid.uuid4().hex[:8]}"
        for crd in (BUCKETS, QUEUES, SELECTORS):
            if self.kube.get(crd.own_path) is None:
                self.kube.install(crd)

    def name(self, suffix: str = "logs") -> str:
        return f"{self._prefix}-{suffix}"

    # ---- the cluster

    def annotate(self, **annotations: str | None) -> None:
        """The Namespace of the objects."""
        self.kube.patch(f"/api/v1/namespaces/{self.namespace}", {"metadata": {"annotations": annotations}})

    def map_accounts(self, **roles: str) -> None:
        self._config_map(ACCOUNT_MAP, roles)

    def map_teams(self, **roles: str) -> None:
        self._config_map(TEAM_MAP, roles)

    def _config_map(self, name: str, data: dict[str, str]) -> None:
        path = f"/api/v1/namespaces/{self.system}/configmaps"
        if self.kube.get(f"{path}/{name}") is not None:
            self.kube.delete(f"{path}/{name}")
        self.kube.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})

    def select(self, name: str, **spec: Any) -> None:
        made = SELECTORS.body(name) | {"spec": {"arn": ROLE, **spec}}
        self.kube.create(SELECTORS.path(), made)

    def unselect(self, name: str) -> None:
        self.kube.delete(SELECTORS.path(name=name))

    def bucket(self, suffix: str = "logs", *, named: str = "", namespace: str = "", **said: Any) -> dict[str, Any]:
        """A bucket's object on the server, synced; returns it with its status."""
        name = named or self.name(suffix)
        return self.object(BUCKETS, suffix, {"name": name}, status(arn_of_bucket(name), **said), namespace)

    def object(
        self, crd: Crd, suffix: str, spec: dict[str, Any], said: dict[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        path = crd.path(namespace or self.namespace)
        self.kube.create(path, body(crd, self.name(suffix), spec, None))
        made: dict[str, Any] = self.kube.patch(f"{path}/{self.name(suffix)}/status", {"status": said})
        return made

    # ---- the collector

    def facts(self, found: dict[str, Any], *, live: bool = False, **changed: Any) -> ObjectFacts:
        """As of an object that was recognised while it was synced, and is gone unless it is `live`."""
        crd, meta = BUCKETS if found["kind"] == BUCKETS.kind else QUEUES, found["metadata"]
        source = next(name for name, one in SOURCES.items() if one == crd)
        ref = ObjectRef(
            deletion=f"cluster/{crd.resource}/{meta['uid']}/1", source=source, cluster="cluster",
            resource=crd.resource, uid=meta["uid"], name=meta["name"], namespace=meta["namespace"],
        )  # fmt: skip
        around: Any = self.kube.get(f"/api/v1/namespaces/{meta['namespace']}")
        namespace = around["metadata"].get("annotations", {})
        seen = KubeObject(uid=meta["uid"], name=meta["name"], deleting=1, raw=msgspec.Raw(encoded(found)))
        known: dict[str, Any] = {
            "ref": ref, "settings": SourceSettings(resource=crd.resource, collector=ACK), "labels": {},
            "annotations": {}, "namespace_annotations": namespace, "recognises": recognise_ack_object(encoded(found)),
            "live": seen if live else None,
        }  # fmt: skip
        return ObjectFacts(**(known | changed))

    async def target(self, facts: ObjectFacts) -> Target:
        plan = await self.collector.collect(facts)
        assert isinstance(plan, Plan), plan
        (target,) = plan.targets
        return target

    async def claim(self, facts: ObjectFacts) -> AckClaim:
        return msgspec.json.decode((await self.target(facts)).data, type=AckClaim)

    async def held(self, facts: ObjectFacts) -> str:
        """Why nothing is planned, nor allowed right before a call."""
        plan, objection = await self.collector.collect(facts), await self.collector.objections(facts)
        assert isinstance(plan, Hold), plan
        assert objection is not None
        return plan.reason

    def scope(self, identity: str = "", namespace: str = "", region: str = REGION) -> CallScope:
        inside = namespace or self.namespace
        return CallScope(source="buckets", namespace=inside, region=region, identity=identity)

    def keep(self, facts: ObjectFacts, *, live: KubeObject | None = None, whole: bool = True) -> KeepRequest:
        ref = msgspec.structs.replace(facts.ref, data=facts.recognises, kept="retain: annotation")
        return KeepRequest(ref=ref, live=live, abandoned=NOTHING_ABANDONED, whole=whole, mark="mark", at=1)


@asynccontextmanager
async def ack_fixture(api: TestApi, aws: LocalAws, folder: Path, **section: Any) -> AsyncIterator[AckFixture]:
    made = AckFixture(api, aws)
    await aws.behave(**msgspec.to_builtins(AwsBehaviour(buckets=False)))
    await aws.behave(roles={ROLE: msgspec.to_builtins(AssumableRole(principals=(OWN,)))})
    here = api.settings(folder)
    section.setdefault("controller_namespace", made.system)
    settings = Settings(
        clusters={"local": here}, sections={"ack": AckSettings(**section)},
        sources={name: SourceSettings(resource=crd.resource, collector=ACK) for name, crd in SOURCES.items()},
    )  # fmt: skip

    async def remembered() -> dict[str, str]:
        return {}

    collector_of, limits = partial(collector_of_source, settings), AwsLimits()
    clients = SdkClients(limits, collector_of, endpoint=aws.address)
    async with await connect("local", here) as made.cluster, clients as made.clients:
        places = SourceClusters(settings, {"local": made.cluster}, remembered)
        made.claims = ClaimRegistry(collector_of)
        provider = AwsProvider(clients, limits, made.claims, AwsAccess(), made.kept)
        try:
            async with ack_components(AckContext(settings, places, made.kept), provider, any_kind) as components:
                assert isinstance(components.collector, AckCollector)
                made.collector = components.collector
                yield made
        finally:
            await places.aclose()
            await asyncio.sleep(0)
