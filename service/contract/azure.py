"""The names that Karpenter on Azure and Knell share: the kind, how resources are named, and their tags.

They are a contract with resources that outlive any process, and with Karpenter's provider for Azure.
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
"""What Karpenter writes on all that it makes; the second says for which cluster."""

AKS_MACHINE_TAG: Final = "karpenter.azure.com_aksmachine_nodeclaim"
"""On what belongs to a machine of AKS, which AKS itself removes."""

KEEP_TAG: Final = PREVENT_DELETE_TAG.replace("/", "_")
RETAINED: Final = RETAINED_TAG.replace("/", "_")
"""A person's tag and the service's own, as they are named on Azure."""

NODE_CLASS_GROUP: Final = "karpenter.azure.com"
"""The group of the node classes that NodeClaims on Azure refer to."""

_PREFIX: Final = "aks-"


def resource_name(claim: str) -> str:
    """How Karpenter names the machine, the interface and the disk of a NodeClaim."""
    return f"{_PREFIX}{claim}"


def claim_of(resource: str) -> str:
    """The NodeClaim that a resource is named after; empty where it is not named after any."""
    return resource[len(_PREFIX) :] if resource.lower().startswith(_PREFIX) else ""


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a NodeClaim recognises its resources beside its name: the group of its node class, its machine's id,
    which one that was never launched has not, and when it was made, in milliseconds (0: not known)."""

    group: str = ""
    provider_id: str = ""
    made: int = 0


class _NodeClassRef(msgspec.Struct, frozen=True):
    group: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_class_ref: _NodeClassRef = _NodeClassRef()


class _Status(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _NodeClaim(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_node_claim: Final = msgspec.json.Decoder(_NodeClaim)


def claim_in(raw: bytes | msgspec.Raw) -> Claim:
    """Of a whole NodeClaim as text. Raises DecodeError where it is none as Karpenter writes them."""
    whole = _node_claim.decode(raw)
    made = whole.metadata.creation_timestamp
    at = int(made.timestamp() * 1000) if made is not None else 0
    return Claim(whole.spec.node_class_ref.group, whole.status.provider_id, at)
