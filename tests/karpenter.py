"""Karpenter's objects on an API server: NodeClaims, and Nodes of machines on Azure.
NodeClaims have no Namespace, so each test uses names of its own."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from service.sources.karpenter_azure import NODE_CLASS_GROUP, resource_name
from tests.kube import Crd, Kube

NODECLAIMS: Final = Crd("karpenter.sh", "nodeclaims", "Cluster", ("v1",), "NodeClaim")
NODES: Final = "/api/v1/nodes"


def install(kube: Kube) -> None:
    """Unless it is there: it stays as long as the server, for other tests may be about it, too."""
    if kube.get(NODECLAIMS.own_path) is None:
        kube.install(NODECLAIMS)


class KarpenterObjects:
    """`place` is subscription/group, where its machines are."""

    def __init__(self, kube: Kube, subscription: str, group: str) -> None:
        self.kube, self.subscription, self.group = kube, subscription, group
        self.prefix = f"pool-{uuid.uuid4().hex[:6]}"
        self._nodes: list[str] = []
        install(kube)

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def provider_id(self, claim: str) -> str:
        return (
            f"azure:///subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/Microsoft.Compute/"
            f"virtualMachines/{resource_name(claim)}"
        )

    def claim(self, name: str, *, launched: bool = True, group: str = NODE_CLASS_GROUP, **metadata: Any) -> str:
        """Makes one, and answers its uid."""
        body: dict[str, Any] = NODECLAIMS.body(name, **metadata)
        body["spec"] = {"nodeClassRef": {"group": group, "kind": "AKSNodeClass", "name": "default"}}
        made = self.kube.create(NODECLAIMS.path(), body)
        if launched:
            self.kube.patch(f"{NODECLAIMS.path('', name)}/status", {"status": {"providerID": self.provider_id(name)}})
        return str(made["metadata"]["uid"])

    def unclaim(self, name: str) -> None:
        self.kube.delete(NODECLAIMS.path("", name))

    def is_claimed(self, name: str) -> bool:
        return self.kube.get(NODECLAIMS.path("", name)) is not None

    def node(
        self,
        claim: str,
        *,
        name: str = "",
        ready: str = "True",
        since: timedelta = timedelta(0),
        provider_id: str = "",
    ) -> str:
        """A Node on the machine of a claim, whose Ready condition has that status since then; an empty one: it has no
        such condition."""
        name = name or resource_name(claim)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {"providerID": provider_id or self.provider_id(claim)}}  # fmt: skip
        self.kube.create(NODES, body)
        self._nodes.append(name)
        if ready:
            self.readiness(name, ready, since)
        return name

    def settle(self) -> str:
        """A Node of the cluster that runs in the group, as those of AKS's own pools do: the group is this cluster's."""
        name = f"system-{self.prefix}"
        scale_set = f"{self.provider_id('x').partition('/virtualMachines/')[0]}/virtualMachineScaleSets/pool"
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "spec": {"providerID": f"{scale_set}/virtualMachines/0"}}  # fmt: skip
        self.kube.create(NODES, body)
        self._nodes.append(name)
        return name

    def readiness(self, node: str, ready: str, since: timedelta = timedelta(0)) -> None:
        at = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": ready, "reason": "Told", "message": "",
                     "lastHeartbeatTime": at, "lastTransitionTime": at}  # fmt: skip
        self.kube.patch(f"{NODES}/{node}/status", {"status": {"conditions": [condition]}})

    def unnode(self, name: str) -> None:
        self.kube.delete(f"{NODES}/{name}")
        self._nodes.remove(name)

    def clear(self) -> None:
        """What other tests would find in their lists."""
        for name in list(self._nodes):
            self.unnode(name)
