"""Cluster API clusters of a scenario, changed as users and Cluster API change them, and the state of their objects.
An infrastructure object is identified by its uid, and its resources by the name in their tags."""

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from service.contract.names import CONDITION
from service.sources.capa import AWS_FINALIZER
from standins.aws.builder import REGION, AwsBuilder, Vpc
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, CapiObjects
from tests.kube import Crd, Kube


class Infra(msgspec.Struct, frozen=True, kw_only=True):
    """An AWSCluster or AWSManagedControlPlane; `tag` is the cluster's name in the tags of its resources."""

    crd: Crd
    namespace: str
    name: str
    cluster: str
    tag: str
    uid: str
    vpc: Vpc

    @property
    def path(self) -> str:
        return self.crd.path(self.namespace, self.name)


class CapiClusters:
    """Of one namespace, in one account."""

    def __init__(self, kube: Kube, namespace: str, builder: AwsBuilder) -> None:
        self.kube, self.namespace, self.builder = kube, namespace, builder
        self.capi = CapiObjects(kube, namespace)

    async def unmanaged(
        self, name: str, vpc: Vpc | None = None, *, capi: CapiObjects | None = None, **given: Any
    ) -> Infra:  # fmt: skip
        """A Cluster on EC2 and its AWSCluster; `given` is laid over what is made."""
        vpc, where = vpc or await self.builder.vpc(), capi or self.capi
        found = where.unmanaged(name, region=REGION, **{"vpc": vpc.id, **given})
        return _infra(AWS_CLUSTERS, found, name, name, vpc)

    async def managed(self, name: str, vpc: Vpc | None = None, **given: Any) -> Infra:
        """A Cluster on EKS, with its EKS cluster, and its AWSManagedControlPlane."""
        vpc, eks = vpc or await self.builder.vpc(), f"{name}-eks"
        await self.builder.eks_cluster(eks, vpc)
        found = self.capi.managed(name, eks=eks, region=REGION, **{"vpc": vpc.id, **given})
        return _infra(AWS_MANAGED_CONTROL_PLANES, found, name, eks, vpc)

    async def delete(self, infra: Infra) -> None:
        """As Cluster API does after a user has deleted the Cluster: running resources are deleted first."""
        if infra.crd is AWS_MANAGED_CONTROL_PLANES:
            await self.builder.eks.delete_cluster(name=infra.tag)
        self.kube.delete(infra.path)

    def annotate(self, infra: Infra, annotations: Mapping[str, str | None]) -> None:
        self.kube.patch(infra.path, {"metadata": {"annotations": annotations}})

    def nudge(self, infra: Infra) -> None:
        """Something about the object changes, so that what is held is not left alone until its time has come."""
        self.kube.patch(infra.path, {"metadata": {"labels": {"nudged": uuid.uuid4().hex}}})

    # ---- what their objects say

    def finalizers(self, infra: Infra) -> list[str]:
        found = self.kube.get(infra.path)
        return [] if found is None else list(found["metadata"].get("finalizers", []))

    def marked(self, infra: Infra) -> bool:
        return AWS_FINALIZER in self.finalizers(infra)

    def is_gone(self, infra: Infra) -> bool:
        return self.kube.get(infra.path) is None

    def told(self, infra: Infra) -> str:
        """What the condition on the object says; empty where it has none."""
        found = self.kube.get(infra.path)
        conditions = (found or {}).get("status", {}).get("conditions") or []
        return next((f"{one['reason']}: {one['message']}" for one in conditions if one["type"] == CONDITION), "")


def _infra(crd: Crd, found: Any, cluster: str, tag: str, vpc: Vpc) -> Infra:
    meta = found["metadata"]
    return Infra(
        crd=crd, namespace=meta["namespace"], name=meta["name"], cluster=cluster, tag=tag, uid=meta["uid"], vpc=vpc
    )
