"""Orphan candidates of an Azure resource group: machines, and interfaces without a machine.
Each takes few bytes, because there may be very many; whether a NodeClaim owns them is checked afterwards."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from service.contract.azure import node_claim_of
from service.settings import AzureNodes
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import NIC, VM
from workers.handlers.azure.listing import INCOMPLETE, AzureLister, ListingMethod
from workers.handlers.azure.model import AzureResource, AzureScope

Seen = Callable[[int], None]


class OrphanCandidate(NamedTuple):
    """`vm` and `nic` are the provider's own ids; empty if there is none, or if it is no candidate."""

    vm: str
    nic: str
    group_number: int

    @property
    def ids(self) -> str:
        return f"{self.vm} {self.nic}"

    def is_other(self, ids: str) -> bool:
        """Whether it is another resource than the one with those ids. Only a different id proves that: an interface
        whose machine is gone was seen together with the machine before."""
        vm, _, nic = ids.partition(" ")
        return any(before and now and before != now for before, now in ((vm, self.vm), (nic, self.nic)))

    def gained_machine(self, told: str) -> bool:
        """Whether it has a machine now, but was published as an interface alone."""
        return bool(self.vm) and told.startswith(" ")


class OrphanCandidates:
    """Candidates by name of the NodeClaim. `listed` counts all listed resources; `unidentified` counts those that would
    be candidates if the list had contained their id."""

    def __init__(self) -> None:
        self._found: dict[str, list[OrphanCandidate]] = {}
        self._others: set[str] = set()
        self.listed = self.unidentified = 0

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[tuple[str, OrphanCandidate]]:
        return ((claim, one) for claim, some in self._found.items() for one in some)

    def names(self) -> set[str]:
        """NodeClaim names of all listed resources, candidates or not."""
        return self._found.keys() | self._others

    def remove(self, claim: str) -> None:
        self._found.pop(claim, None)

    async def gather(
        self, lister: AzureLister, nodes: AzureNodes, group_number: int, way: ListingMethod, seen: Seen
    ) -> None:
        """Raises AzureError, and then the lists are incomplete."""
        where, before = AzureScope.of(nodes), self.listed
        for kind in (VM, NIC):
            async for page in lister.pages(kind, where, nodes.cluster, way):
                for found in page:
                    self._add(found, group_number)
                self.listed += len(page)
                seen(self.listed)
                # Frees its memory before the next page is fetched.
                del page
        if way == "graph" and self.listed == before:
            await lister.answers(where)

    def _add(self, found: AzureResource, group_number: int) -> None:
        claim = node_claim_of(found.name.lower())
        # It is already being deleted, or is an interface that is deleted together with its machine.
        already_handled = found.going or (found.kind == NIC.name and bool(found.used_by))
        if not claim or not found.guid or already_handled:
            if claim and claim not in self._found:
                self._others.add(claim)
            self.unidentified += bool(claim and not already_handled)
            return
        some = self._found.setdefault(claim, [])
        mine = next((number for number, one in enumerate(some) if one.group_number == group_number), None)
        one = some[mine] if mine is not None else OrphanCandidate("", "", group_number)
        one = one._replace(vm=found.guid) if found.kind == VM.name else one._replace(nic=found.guid)
        if mine is None:
            some.append(one)
        else:
            some[mine] = one


def is_graph_unusable(error: AzureError) -> bool:
    """Whether the providers' own lists should be used instead of Resource Graph: access is denied, or rows are missing,
    which is usual in large groups, because something is always deleted meanwhile."""
    return error.what == "denied" or error.code == INCOMPLETE
