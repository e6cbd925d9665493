"""Kubernetes objects of the demo: Clusters with their AWSClusters, NodeClaims, and Buckets and Queues of ACK.
They are created, annotated, deleted and read with the ordinary API, as any client does it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from service.contract.names import ACK_PREFIX, CONDITION, CONTROLLER, share_lease
from service.kubernetes import (
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    KubeObject,
    KubernetesClient,
    NotFound,
    NotServed,
    ServedResource,
)
from service.policy.capi import CLUSTER_NAME
from service.sources.ack import ACK
from service.sources.capa import AWS_CLUSTERS as AWS_RESOURCE
from service.sources.capa import AWS_FINALIZER, CAPA
from service.sources.karpenter_azure import KARPENTER_AZURE, NODE_CLASS_GROUP
from service.sources.karpenter_azure import NODECLAIMS as NODE_RESOURCE
from standins.demo.fleet import DemoAckObject

NAMESPACE: Final = "shop"
KNELL_NAMESPACE: Final = "knell"
"""Namespace of Knell's Leases."""
_STEP: Final = 0.05


@dataclass(frozen=True, slots=True)
class DemoKind:
    """One CustomResourceDefinition. Those with a collector are sources of Knell, named by their plural."""

    plural: str
    name: str
    group: str
    version: str
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    collector: str = ""
    mode: Literal["finalizer", "observe"] = "finalizer"

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def namespace(self) -> str:
        return NAMESPACE if self.scope == "Namespaced" else ""

    def definition(self) -> dict[str, Any]:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
            "subresources": {"status": {}},
        }
        return {
            "metadata": {"name": self.resource},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {"plural": self.plural, "singular": self.name.lower(), "kind": self.name},
                "versions": [version],
            },
        }

    def source(self) -> dict[str, Any]:
        """The source in the settings. Almost all objects are deleted at once here, which the guard would stop."""
        return {
            "resource": self.resource,
            "collector": self.collector,
            "mode": self.mode,
            "adopt_existing": True,
            "guard": {"enabled": False},
        }


_CORE, _VERSION = "cluster.x-k8s.io", "v1beta2"
CLUSTERS: Final = DemoKind("clusters", "Cluster", _CORE, _VERSION)
# There are none of these two, but the collector has to read that before it deletes anything.
MACHINES: Final = DemoKind("machines", "Machine", _CORE, _VERSION)
MACHINE_POOLS: Final = DemoKind("machinepools", "MachinePool", _CORE, _VERSION)
AWS_CLUSTERS: Final = DemoKind("awsclusters", "AWSCluster", AWS_RESOURCE.partition(".")[2], _VERSION, collector=CAPA)
NODECLAIMS: Final = DemoKind(
    "nodeclaims", "NodeClaim", NODE_RESOURCE.partition(".")[2], "v1", "Cluster", KARPENTER_AZURE, "observe"
)
BUCKETS: Final = DemoKind("buckets", "Bucket", f"s3.{ACK_PREFIX}", "v1alpha1", collector=ACK, mode="observe")
QUEUES: Final = DemoKind("queues", "Queue", f"sqs.{ACK_PREFIX}", "v1alpha1", collector=ACK, mode="observe")
SOURCES: Final = (AWS_CLUSTERS, NODECLAIMS, BUCKETS, QUEUES)
KINDS: Final = (CLUSTERS, MACHINES, MACHINE_POOLS, *SOURCES)
ACK_KINDS: Final = {kind.name: kind for kind in (BUCKETS, QUEUES)}


class _LeaseSpec(msgspec.Struct, frozen=True):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")


class _LeaseObject(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


class _ConditionEntry(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="type")
    status: str
    reason: str = ""
    message: str = ""


class _ObjectStatus(msgspec.Struct, frozen=True):
    conditions: list[_ConditionEntry] = []


class _ObjectWithStatus(msgspec.Struct, frozen=True):
    status: _ObjectStatus = _ObjectStatus()


class _EventObject(msgspec.Struct, frozen=True):
    reason: str = ""
    controller: str = msgspec.field(default="", name="reportingController")


class _EventList(msgspec.Struct, frozen=True):
    items: list[_EventObject]


class DemoObjects:
    def __init__(self, cluster: KubernetesClient) -> None:
        self._cluster = cluster
        self._served: dict[DemoKind, ServedResource] = {}

    # ---- writes

    async def define(self) -> None:
        """Creates the Namespaces and kinds; returns when all kinds are served."""
        for name in (KNELL_NAMESPACE, NAMESPACE):
            await self._cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
        for kind in KINDS:
            await self._cluster.create(CRDS, "", kind.definition())
        for kind in KINDS:
            self._served[kind] = await self._until_served(kind)

    async def _until_served(self, kind: DemoKind) -> ServedResource:
        # A moment passes between a definition and the first list of its objects.
        while True:
            try:
                served = await self._cluster.discover(kind.resource)
                await self._cluster.request("GET", served.path(), query={"limit": "1"})
            except (NotServed, NotFound):
                await asyncio.sleep(_STEP)
            else:
                return served

    async def create_cluster(self, name: str, region: str, vpc: str, annotations: Mapping[str, str]) -> None:
        infrastructure = {"apiGroup": AWS_CLUSTERS.group, "kind": AWS_CLUSTERS.name, "name": name}
        made = await self._create(CLUSTERS, {"name": name}, {"infrastructureRef": infrastructure})
        owner = {"apiVersion": f"{_CORE}/{_VERSION}", "kind": CLUSTERS.name, "name": name, "uid": made.uid}
        metadata = {
            "name": name,
            "labels": {CLUSTER_NAME: name},
            "ownerReferences": [owner],
            "annotations": dict(annotations),
        }
        await self._create(AWS_CLUSTERS, metadata, {"region": region, "network": {"vpc": {"id": vpc}}})

    async def create_node(self, name: str, provider_id: str) -> str:
        """A NodeClaim; without a provider id its launch has failed. Returns its uid."""
        node_class = {"group": NODE_CLASS_GROUP, "kind": "AKSNodeClass", "name": "default"}
        made = await self._create(NODECLAIMS, {"name": name}, {"nodeClassRef": node_class})
        if provider_id:
            status = {"status": {"providerID": provider_id}}
            await self._cluster.patch(self._served[NODECLAIMS], "", name, status, subresource="status")
        return made.uid

    async def create_ack(self, one: DemoAckObject, spec: Mapping[str, str], status: Mapping[str, Any]) -> str:
        """An object that its controller has reported as synced. Returns its uid."""
        kind, name = ACK_KINDS[one.kind], one.name
        made = await self._create(kind, {"name": name, "annotations": dict(one.annotations)}, spec)
        await self._cluster.patch(
            self._served[kind], NAMESPACE, name, {"status": dict(status)}, subresource="status"
        )  # fmt: skip
        return made.uid

    async def _create(self, kind: DemoKind, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> KubeObject:
        return await self._cluster.create(
            self._served[kind], kind.namespace, {"metadata": dict(metadata), "spec": dict(spec)}
        )

    async def annotate(self, kind: DemoKind, name: str, annotation: str, value: str | None) -> None:
        patch = {"metadata": {"annotations": {annotation: value}}}
        await self._cluster.patch(self._served[kind], kind.namespace, name, patch)

    def served(self, kind: DemoKind) -> ServedResource:
        return self._served[kind]

    async def delete(self, kind: DemoKind, name: str) -> None:
        await self._cluster.delete(self._served[kind], kind.namespace, name)

    # ---- reads

    async def by_name(self, kind: DemoKind) -> dict[str, KubeObject]:
        """The objects of a kind that exist."""
        found: dict[str, KubeObject] = {}
        async for page in self._cluster.pages(self._served[kind], None):
            found |= {seen.name: seen.without_raw() for seen in page.items}
        return found

    async def is_going(self, kind: DemoKind, name: str) -> bool:
        """Whether it is gone or being deleted."""
        seen = await self._cluster.get(self._served[kind], kind.namespace, name)
        return seen is None or seen.going

    async def held_by_finalizer(self, name: str) -> bool:
        """Whether this AWSCluster is being deleted and waits for Knell's finalizer."""
        seen = await self._cluster.get(self._served[AWS_CLUSTERS], NAMESPACE, name)
        return seen is not None and seen.going and AWS_FINALIZER in seen.finalizers

    async def condition(self, name: str) -> tuple[str, str]:
        """Reason and message of Knell's condition on an AWSCluster; empty where there is none."""
        seen = await self._cluster.get(self._served[AWS_CLUSTERS], NAMESPACE, name)
        if seen is None:
            return "", ""
        for one in msgspec.json.decode(seen.raw, type=_ObjectWithStatus).status.conditions:
            if one.kind == CONDITION:
                return one.reason, one.message
        return "", ""

    async def events(self) -> Counter[str]:
        """Knell's Events by reason."""
        found = msgspec.json.decode(await self._cluster.request("GET", EVENTS.path()), type=_EventList)
        return Counter(one.reason for one in found.items if one.controller == CONTROLLER)

    async def lease_holders(self) -> dict[str, str]:
        """The replica that watches each source, by the name of the source; a source without one is left out."""
        found: dict[str, str] = {}
        for kind in SOURCES:
            path = LEASES.path(KNELL_NAMESPACE, share_lease(kind.plural, 0))
            try:
                lease = msgspec.json.decode(await self._cluster.request("GET", path), type=_LeaseObject)
            except NotFound:
                continue
            if lease.spec.holder:
                found[kind.plural] = lease.spec.holder.rpartition("_")[0]
        return found
