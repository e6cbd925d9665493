"""Finder of orphans of Karpenter on Azure, for the sweeps of its sources: machines and interfaces in the groups of
`azure.nodes` that are named after a NodeClaim."""

from collections.abc import Sequence
from typing import Final, cast

import msgspec
import structlog

from service.sources.karpenter_azure import AzureNodes, AzureSettings
from workers.collectors.karpenter_azure import candidates as listed
from workers.collectors.karpenter_azure.cluster_groups import groups_with_nodes
from workers.collectors.karpenter_azure.collector import OrphanIds
from workers.collectors.karpenter_azure.kept_tagging import place_of
from workers.collectors.karpenter_azure.listing import AzureLister, ListingMethod
from workers.handlers.orphans import (
    ListingFailed,
    MethodUnusable,
    OrphanCandidate,
    OrphanCandidates,
    OrphanPlace,
    Progress,
    SweepSchedule,
    SweepWords,
)
from workers.handlers.source_clusters import SourceCluster
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import NIC, VM
from workers.providers.azure.model import AzureScope

log = structlog.get_logger(__name__)

_WORDS: Final = SweepWords(
    owner="NodeClaim",
    owners="NodeClaims",
    owner_field="claim",
    place="group",
    methods=listed.METHODS,
    doubted="left: no Node of this cluster runs in that group",
    disable="set azure.sweep.enabled to false",
)


class KarpenterOrphans:
    """An `OrphanFinder`. Its calls draw on the budgets as background work."""

    words = _WORDS

    def __init__(self, settings: AzureSettings, lister: AzureLister) -> None:
        self._settings, self._lister = settings, lister

    # ---- what the settings say

    def schedule(self, source: str) -> SweepSchedule:
        del source
        sweep = self._settings.sweep
        return SweepSchedule(enabled=sweep.enabled, every=sweep.every, age=sweep.age)

    def places(self, source: str) -> Sequence[OrphanPlace]:
        return [
            OrphanPlace(
                name=f"{one.subscription}/{one.resource_group}".lower(),
                kept=place_of(one),
                title=one.resource_group,
                fields={"subscription": one.subscription, "group": one.resource_group},
            )
            for one in self._nodes(source)
        ]

    def methods(self, source: str) -> Sequence[str]:
        del source
        return ("graph", "provider") if self._settings.sweep.listing == "graph" else ("provider",)

    def _nodes(self, source: str) -> Sequence[AzureNodes]:
        return self._settings.nodes.get(source, ())

    # ---- lists and reads

    async def candidates(self, source: str, method: str, progress: Progress) -> OrphanCandidates:
        found, way = OrphanCandidates(), cast("ListingMethod", method)
        try:
            for number, nodes in enumerate(self._nodes(source)):
                await listed.gather(found, self._lister, nodes, number, way, progress)
        except AzureError as error:
            unusable = way == "graph" and listed.is_graph_unusable(error)
            raise (MethodUnusable if unusable else ListingFailed)(str(error)) from error
        return found

    async def proven_places(self, source: str, cluster: SourceCluster) -> set[int]:
        return await groups_with_nodes(cluster, self._nodes(source))

    async def is_absent(self, source: str, owner: str) -> bool:
        try:
            for nodes in self._nodes(source):
                for kind in (VM, NIC):
                    if await self._lister.find(kind, AzureScope.of(nodes), owner) is not None:
                        return False
        except AzureError as error:
            log.info("not known whether anything is left of what was to stay", claim=owner, reason=str(error))
            return False
        return True

    # ---- candidates

    def is_other(self, before: str, now: str) -> bool:
        return listed.is_other(before, now)

    def has_more(self, published: str, now: str) -> bool:
        return listed.gained_machine(published, now)

    def needs_proof(self, ids: str) -> bool:
        """With the wrong cluster every machine of the group would seem to be an orphan; an interface without a machine
        is of no use to any cluster."""
        return not ids.startswith(" ")

    def event_data(self, source: str, one: OrphanCandidate) -> str:
        nodes, (vm, nic) = self._nodes(source)[one.place], listed.split_ids(one.ids)
        data = OrphanIds(
            subscription=nodes.subscription.lower(), group=nodes.resource_group.lower(), vm=vm, nic=nic,
            cluster=nodes.cluster,
        )  # fmt: skip
        return msgspec.json.encode(data).decode()

    # ---- words

    def kind(self, ids: str) -> str:
        return "network interface" if ids.startswith(" ") else "virtual machine"

    def doubt(self, count: int) -> str:
        return (
            f"{count} machines seem to be orphans in a group in which no Node of this cluster runs; see whether "
            f"azure.nodes and the source's cluster belong together"
        )

    def unidentified(self, count: int, method: str) -> str:
        instead = "; azure.sweep.listing: provider lists them otherwise" if method == "graph" else ""
        return (
            f"{count} resources have no id (resourceGuid or vmId) in the rows of {listed.METHODS[method]} and were "
            f"skipped{instead}"
        )
