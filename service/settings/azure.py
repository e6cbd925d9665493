"""Settings of Karpenter nodes on Azure: subscriptions, resource groups, and the sweep for orphans.
Places come from the settings only: no event determines where anything is deleted."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal

import msgspec

from service.contract.azure import KARPENTER_AZURE
from service.settings.durations import NotNegative, Positive
from service.settings.sources import SourceSettings

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


class AzureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # By source: the NodeClaims of a source may have nodes in several subscriptions and groups.
    nodes: dict[str, tuple[AzureNodes, ...]] = msgspec.field(default_factory=dict)
    # Time for Karpenter to clean up itself after a NodeClaim is gone.
    grace: NotNegative = timedelta(seconds=60)
    # How long a Node must be not ready before it no longer protects its machine.
    not_ready: NotNegative = timedelta(minutes=10)
    # The part of every quota that is left for Karpenter and others.
    reserve: Annotated[float, msgspec.Meta(ge=0, le=0.9)] = 0.2
    sweep: SweepSettings = SweepSettings()
    # Retained, abandoned or dropped resources get the tag knell.dev_retained, where permissions allow it.
    mark_retained: bool = True
    # Else a machine or disk that is more than an hour older than its NodeClaim is held.
    accept_older: bool = False
    # The endpoint of Azure Resource Manager: that of another cloud, or of a stand-in.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] = (
        "https://management.azure.com"
    )

    def contradictions(self, sources: Mapping[str, SourceSettings]) -> list[tuple[str, str]]:
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
