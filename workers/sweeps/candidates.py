"""What one group on Azure has without a sign of life of its own: machines, and interfaces without one.
Kept in few bytes each, for there may be very many; whether they have an owner is asked afterwards."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from service.contract.azure import claim_of
from service.settings import AzureNodes
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import NIC, VM
from workers.handlers.azure.listing import INCOMPLETE, Lister, Way
from workers.handlers.azure.model import Found, Where

Seen = Callable[[int], None]


class Candidate(NamedTuple):
    """`vm` and `nic` are the provider's own ids; empty where there is none, or one that is somebody's."""

    vm: str
    nic: str
    place: int

    @property
    def ids(self) -> str:
        return f"{self.vm} {self.nic}"

    def is_other(self, ids: str) -> bool:
        """Than what had those ids. An interface that its machine has left was a part of that: only an id that is
        another one says so."""
        vm, _, nic = ids.partition(" ")
        return any(before and now and before != now for before, now in ((vm, self.vm), (nic, self.nic)))

    def is_news(self, told: str) -> bool:
        """Whether a machine has come to what was told as an interface alone."""
        return bool(self.vm) and told.startswith(" ")


class Candidates:
    """By NodeClaim's name. `listed` counts what was looked at; what was no candidate has left its name, too.
    `unidentified` are those that would be candidates if the list had given their id."""

    def __init__(self) -> None:
        self._found: dict[str, list[Candidate]] = {}
        self._others: set[str] = set()
        self.listed = self.unidentified = 0

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[tuple[str, Candidate]]:
        return ((claim, one) for claim, some in self._found.items() for one in some)

    def names(self) -> set[str]:
        """Of all that is there, on its way or not."""
        return self._found.keys() | self._others

    def lives(self, claim: str) -> None:
        self._found.pop(claim, None)

    async def gather(self, lister: Lister, nodes: AzureNodes, place: int, way: Way, seen: Seen) -> None:
        """Raises AzureError, and then nothing is known of anything."""
        where, before = Where.of(nodes), self.listed
        for kind in (VM, NIC):
            async for page in lister.pages(kind, where, nodes.cluster, way):
                for found in page:
                    self._add(found, place)
                self.listed += len(page)
                seen(self.listed)
                # Otherwise it would live on while the next one is fetched.
                del page
        if way == "graph" and self.listed == before:
            await lister.answers(where)

    def _add(self, found: Found, place: int) -> None:
        claim = claim_of(found.name.lower())
        # What is on its way needs nobody; an interface that has a machine goes with that.
        needs_nobody = found.going or (found.kind == NIC.name and bool(found.used_by))
        if not claim or not found.guid or needs_nobody:
            if claim and claim not in self._found:
                self._others.add(claim)
            self.unidentified += bool(claim and not needs_nobody)
            return
        some = self._found.setdefault(claim, [])
        mine = next((number for number, one in enumerate(some) if one.place == place), None)
        one = some[mine] if mine is not None else Candidate("", "", place)
        one = one._replace(vm=found.guid) if found.kind == VM.name else one._replace(nic=found.guid)
        if mine is None:
            some.append(one)
        else:
            some[mine] = one


def of_no_use(error: AzureError) -> bool:
    """Of Resource Graph, where the providers' own lists may serve: it is denied, or its rows are not whole, and in a
    large group they seldom are, for something always goes meanwhile."""
    return error.what == "denied" or error.code == INCOMPLETE
