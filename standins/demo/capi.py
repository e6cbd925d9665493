"""The demo's Cluster API cluster as its management cluster has it: a Cluster, and the AWSCluster that Knell watches.
It is made, deleted and looked at with the ordinary API."""

from typing import Final

from service.contract.aws import AWS_CLUSTERS as AWS_RESOURCE
from service.contract.aws import AWS_FINALIZER, CAPA, CLUSTER_NAME
from service.kubernetes import Cluster, Seen, Served
from standins.demo.defining import define
from standins.demo.invention import SHOP
from standins.demo.kinds import Kind

NAME: Final = "checkout"
"""Of both objects, and by which the tags of its resources call it."""
CALLED: Final = f"AWSCluster {SHOP}/{NAME}"

_CORE: Final = "cluster.x-k8s.io"
_VERSION: Final = "v1beta2"
CAPI_CLUSTERS: Final = Kind("clusters", "Cluster", group=_CORE, version=_VERSION)
# There are none, which has to be known before anything is removed.
_MACHINES: Final = Kind("machines", "Machine", group=_CORE, version=_VERSION)
_MACHINE_POOLS: Final = Kind("machinepools", "MachinePool", group=_CORE, version=_VERSION)
AWS_CLUSTERS: Final = Kind(
    "awsclusters", "AWSCluster", group=AWS_RESOURCE.partition(".")[2], version=_VERSION, collector=CAPA
)
_KINDS: Final = (CAPI_CLUSTERS, _MACHINES, _MACHINE_POOLS, AWS_CLUSTERS)


class Capi:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._served: dict[Kind, Served] = {}

    async def prepare(self) -> None:
        """Returns when the kinds are served."""
        self._served = await define(self._cluster, _KINDS)

    async def make(self, region: str, vpc: str) -> None:
        infra = {"apiGroup": AWS_CLUSTERS.group, "kind": AWS_CLUSTERS.name, "name": NAME}
        body = {"metadata": {"name": NAME}, "spec": {"infrastructureRef": infra}}
        made = await self._cluster.create(self._served[CAPI_CLUSTERS], SHOP, body)
        owner = {"apiVersion": f"{_CORE}/{_VERSION}", "kind": CAPI_CLUSTERS.name, "name": NAME, "uid": made.uid}
        metadata = {"name": NAME, "labels": {CLUSTER_NAME: NAME}, "ownerReferences": [owner]}
        spec = {"region": region, "network": {"vpc": {"id": vpc}}}
        await self._cluster.create(self._served[AWS_CLUSTERS], SHOP, {"metadata": metadata, "spec": spec})

    async def delete(self) -> bool:
        """As Cluster API does it when nothing of the cluster runs any more. Whether the finalizer holds it now."""
        await self._cluster.delete(self._served[AWS_CLUSTERS], SHOP, NAME)
        seen = await self._look()
        return seen is not None and seen.going and AWS_FINALIZER in seen.finalizers

    async def marked(self) -> bool:
        seen = await self._look()
        return seen is not None and AWS_FINALIZER in seen.finalizers

    async def gone(self) -> bool:
        return await self._look() is None

    async def _look(self) -> Seen | None:
        return await self._cluster.get(self._served[AWS_CLUSTERS], SHOP, NAME)
