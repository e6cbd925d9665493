"""Names that Knell shares with Karpenter's Azure provider: the NodeClaim, resource names and tags.

Resources carry them longer than any process lives, so they must not change.
"""

from datetime import datetime
from typing import Final

import msgspec

from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG

KARPENTER_AZURE: Final = "karpenter-azure"
"""The collector of NodeClaims on Azure."""

NODECLAIMS: Final = "nodeclaims.karpenter.sh"
NODES: Final = "nodes"

NODEPOOL_TAG: Final = "karpenter.sh_nodepool"
CLUSTER_TAG: Final = "karpenter.azure.com_cluster"
"""Tags of all resources of Karpenter; the second has the name of the cluster."""

AKS_MACHINE_TAG: Final = "karpenter.azure.com_aksmachine_nodeclaim"
"""Tag of resources of AKS machines, which AKS itself removes."""

KEEP_TAG: Final = PREVENT_DELETE_TAG.replace("/", "_")
RETAINED: Final = RETAINED_TAG.replace("/", "_")
"""The operator's and the service's keep tag, as they are named on Azure."""

NODE_CLASS_GROUP: Final = "karpenter.azure.com"
"""The group of the node classes that NodeClaims on Azure refer to."""

_PREFIX: Final = "aks-"


def resource_name(claim: str) -> str:
    """Karpenter's name for the machine, the interface and the disk of a NodeClaim."""
    return f"{_PREFIX}{claim}"


def node_claim_of(resource: str) -> str:
    """The NodeClaim that a resource is named after; empty where it has another name."""
    return resource[len(_PREFIX) :] if resource.lower().startswith(_PREFIX) else ""


class NodeClaimFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What identifies the resources of a NodeClaim besides its name: the group of its node class, the id of its machine
    (empty if it was never launched), and its creation time in milliseconds (0: unknown)."""

    group: str = ""
    provider_id: str = ""
    made: int = 0


class _NodeClassRef(msgspec.Struct, frozen=True):
    group: str = ""


class _NodeClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_class_ref: _NodeClassRef = _NodeClassRef()


class _NodeClaimStatus(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _NodeClaimMetadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _NodeClaim(msgspec.Struct, frozen=True):
    metadata: _NodeClaimMetadata = _NodeClaimMetadata()
    spec: _NodeClaimSpec = _NodeClaimSpec()
    status: _NodeClaimStatus = _NodeClaimStatus()


_node_claim: Final = msgspec.json.Decoder(_NodeClaim)


def read_node_claim(raw: bytes | msgspec.Raw) -> NodeClaimFacts:
    """Decodes a NodeClaim. Raises DecodeError."""
    whole = _node_claim.decode(raw)
    made = whole.metadata.creation_timestamp
    at = int(made.timestamp() * 1000) if made is not None else 0
    return NodeClaimFacts(whole.spec.node_class_ref.group, whole.status.provider_id, at)
