"""Source of nodes on Azure, by Karpenter's Azure provider: its names, the NodeClaim, settings and declaration.

Resources carry the names longer than any process lives, so they must not change.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec

from service.durations import NotNegative, Positive
from service.sources.azure import AzureAccess, kept_on_azure
from service.sources.declaration import (
    AccessRules,
    ConfiguredSource,
    Rule,
    Section,
    Sections,
    Source,
    Unrecognisable,
)

KARPENTER_AZURE: Final = "karpenter-azure"
"""The collector of NodeClaims on Azure."""

NODECLAIMS: Final = "nodeclaims.karpenter.sh"
NODES: Final = "nodes"

NODEPOOL_TAG: Final = "karpenter.sh_nodepool"
CLUSTER_TAG: Final = "karpenter.azure.com_cluster"
"""Tags of all resources of Karpenter; the second has the name of the cluster."""

AKS_MACHINE_TAG: Final = "karpenter.azure.com_aksmachine_nodeclaim"
"""Tag of resources of AKS machines, which AKS itself removes."""

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


def _recognise(raw: bytes) -> str:
    try:
        return msgspec.json.encode(read_node_claim(raw)).decode()
    except msgspec.DecodeError as error:
        raise Unrecognisable(f"it is no NodeClaim as Karpenter writes them: {error}") from None


_GUID: Final = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z"
Guid = Annotated[str, msgspec.Meta(pattern=_GUID, description="8-4-4-4-12 hexadecimal digits")]


class AzureNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One resource group in which Karpenter creates the nodes of one cluster."""

    subscription: Guid
    # The node resource group, MC_... by default.
    resource_group: Annotated[str, msgspec.Meta(pattern=r"\A[-\w.()]{1,90}\Z", description="a resource group's name")]
    region: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]+\Z", description="as Azure names it, such as westeurope")]
    # The value of the tag karpenter.azure.com_cluster: resources with another value are never touched.
    cluster: Annotated[str, msgspec.Meta(min_length=1)]
    # Tags that a resource must have besides Karpenter's own.
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    # The managed identity to use, where the process has several; its quota is counted separately.
    client_id: Guid | None = None

    def describes(self, subscription: str, group: str) -> bool:
        """Compares without case, since Azure's spelling varies."""
        return (self.subscription.lower(), self.resource_group.lower()) == (subscription.lower(), group.lower())


class SweepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The periodic search for orphans."""

    enabled: bool = True
    every: Positive = timedelta(minutes=5)
    # Minimum time since a resource was first seen orphaned; it must also be orphaned in two passes.
    age: NotNegative = timedelta(minutes=5)
    # Through Resource Graph, with the providers' own lists where it is denied or lags; or only through those.
    listing: Literal["graph", "provider"] = "graph"


class AzureSettings(AzureAccess, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Karpenter nodes on Azure. Places come from the settings only: no event determines where anything is
    deleted."""

    # By source: the NodeClaims of a source may have nodes in several subscriptions and groups.
    nodes: dict[str, tuple[AzureNodes, ...]] = msgspec.field(default_factory=dict)
    # Time for Karpenter to clean up itself after a NodeClaim is gone.
    grace: NotNegative = timedelta(seconds=60)
    # How long a Node must be not ready before it no longer protects its machine.
    not_ready: NotNegative = timedelta(minutes=10)
    sweep: SweepSettings = SweepSettings()
    # Retained, abandoned or dropped resources get the tag knell.dev_retained, where permissions allow it.
    mark_retained: bool = True
    # Else a machine or disk that is more than an hour older than its NodeClaim is held.
    accept_older: bool = False

    def contradictions(self, sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        ours = [name for name, source in sources.items() if source.collector == KARPENTER_AZURE]
        for name in ours:
            if not self.nodes.get(name):
                where = f"azure.nodes.{name}"
                found.append((where, f"must say where the nodes of source {name} are: subscription, resource_group, "
                              f"region and cluster"))  # fmt: skip
        for name in self.nodes:
            if name not in ours:
                known = ", ".join(ours) or "none"
                found.append((f"azure.nodes.{name}", f"is not a source with collector {KARPENTER_AZURE} ({known})"))
        return found + self._shared()

    def _shared(self) -> list[tuple[str, str]]:
        """Two sources with the same cluster in the same group would each take the other's live nodes for orphans."""
        found: list[tuple[str, str]] = []
        seen: dict[tuple[str, str, str], str] = {}
        for name, places in self.nodes.items():
            for number, place in enumerate(places):
                key = (place.subscription.lower(), place.resource_group.lower(), place.cluster.lower())
                if key in seen:
                    found.append((f"azure.nodes.{name}[{number}]", f"stands under {seen[key]} already; each group and "
                                  f"cluster belongs to one source"))  # fmt: skip
                seen.setdefault(key, name)
        return found


def _configured_places(settings: Sections) -> list[str]:
    nodes = settings.section(AzureSettings).nodes.values()
    return [f"azure/{one.subscription}/{one.resource_group}".lower() for some in nodes for one in some]


SOURCE: Final = Source(
    name=KARPENTER_AZURE,
    components="workers.collectors.karpenter_azure.components",
    resources=(NODECLAIMS,),
    modes=("observe",),
    sections=(Section("azure", AzureSettings),),
    recognise=_recognise,
    # A Node that is Ready protects its machine.
    rules=AccessRules(cluster=(Rule("", (NODES,), ("get", "list")),)),
    swept=True,
    kept=kept_on_azure(_configured_places),
)
