"""The demo's NodeClaim as its API server has it: one whose machine was never launched, so it has no provider id.
It is observed: nothing holds it back, and what it left on Azure is found by its name when it is gone."""

from typing import Final

from service.contract.azure import KARPENTER_AZURE, NODE_CLASS_GROUP, resource_name
from service.contract.azure import NODECLAIMS as RESOURCE
from service.kubernetes import Cluster, Served
from standins.demo.defining import define
from standins.demo.kinds import Kind

POOL: Final = "web"
NAME: Final = f"{POOL}-k4x9t"
CALLED: Final = f"NodeClaim {NAME}"
INTERFACE: Final = resource_name(NAME)
_PLURAL, _, _GROUP = RESOURCE.partition(".")
NODECLAIMS: Final = Kind(_PLURAL, "NodeClaim", "observe", _GROUP, "v1", KARPENTER_AZURE, scope="Cluster")


class Karpenter:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._served: Served

    async def prepare(self) -> None:
        """Returns when the kind is served."""
        self._served = (await define(self._cluster, (NODECLAIMS,)))[NODECLAIMS]

    async def make(self) -> str:
        """Its uid."""
        spec = {"nodeClassRef": {"group": NODE_CLASS_GROUP, "kind": "AKSNodeClass", "name": "default"}}
        return (await self._cluster.create(self._served, "", {"metadata": {"name": NAME}, "spec": spec})).uid

    async def delete(self) -> None:
        await self._cluster.delete(self._served, "", NAME)
