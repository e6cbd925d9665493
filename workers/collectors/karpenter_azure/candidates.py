"""Orphan candidates of an Azure resource group: machines, and interfaces without a machine, by name of the NodeClaim.
Their ids are those of the machine and the interface, with a space between; one that is no candidate is left out."""

from typing import Final

from service.sources.karpenter_azure import AzureNodes, node_claim_of
from workers.collectors.karpenter_azure.listing import INCOMPLETE, AzureLister, ListingMethod
from workers.handlers.orphans import OrphanCandidates, Progress
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import NIC, VM
from workers.providers.azure.model import AzureResource, AzureScope

METHODS: Final = {"graph": "Resource Graph", "provider": "the providers' lists"}


def orphan_ids(vm: str = "", nic: str = "") -> str:
    return f"{vm} {nic}"


def split_ids(ids: str) -> tuple[str, str]:
    """The ids of machine and interface; empty where there is none."""
    vm, _, nic = ids.partition(" ")
    return vm, nic


def is_other(before: str, now: str) -> bool:
    """Only a different id proves that: an interface whose machine is gone was seen together with the machine before."""
    return any(one and other and one != other for one, other in zip(split_ids(before), split_ids(now), strict=True))


def gained_machine(published: str, now: str) -> bool:
    """Whether it has a machine now, but was published as an interface alone. The interface waits for that machine,
    which needs a deletion of its own."""
    return published.startswith(" ") and not now.startswith(" ")


async def gather(
    candidates: OrphanCandidates,
    lister: AzureLister,
    nodes: AzureNodes,
    place: int,
    method: ListingMethod,
    progress: Progress,
) -> None:
    """Adds the candidates of one group. Raises AzureError, and then the lists are incomplete."""
    where, before = AzureScope.of(nodes), candidates.listed
    words = f"{nodes.resource_group} by {'Resource Graph' if method == 'graph' else 'the providers'}"
    for kind in (VM, NIC):
        async for page in lister.pages(kind, where, nodes.cluster, method):
            for found in page:
                _add(candidates, found, place)
            candidates.listed += len(page)
            progress(words, candidates.listed)
            # Frees its memory before the next page is fetched.
            del page
    if method == "graph" and candidates.listed == before:
        await lister.answers(where)


def _add(candidates: OrphanCandidates, found: AzureResource, place: int) -> None:
    claim = node_claim_of(found.name.lower())
    # It is already being deleted, or is an interface that is deleted together with its machine.
    already_handled = found.going or (found.kind == NIC.name and bool(found.used_by))
    if not claim:
        return
    if not found.guid or already_handled:
        candidates.put_other(claim)
        candidates.unidentified += not already_handled
        return
    vm, nic = split_ids(candidates.ids(claim, place))
    candidates.put(claim, place, orphan_ids(found.guid, nic) if found.kind == VM.name else orphan_ids(vm, found.guid))


def is_graph_unusable(error: AzureError) -> bool:
    """Whether the providers' own lists should be used instead of Resource Graph: access is denied, or rows are missing,
    which is usual in large groups, because something is always deleted meanwhile."""
    return error.what == "denied" or error.code == INCOMPLETE
