"""Protocol for collectors whose sources are swept: how orphans are listed, compared, published and shown.
The sweep itself (`workers/sweeps`) decides when something is an orphan: it excludes what has an owner, and waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec

from workers.handlers.source_clusters import SourceCluster

Progress = Callable[[str, int], None]
"""Receives what is being listed, and how many of it so far."""


class ListingFailed(Exception):
    """The candidates could not be listed completely; the message says why."""


class MethodUnusable(ListingFailed):
    """This listing method is of no use now; the next one is used instead."""


class OrphanCandidate(NamedTuple):
    """Resources of one owner in one place, given by its number. `ids` are the provider's own ids, as the collector
    writes them: with other ids it is another candidate."""

    ids: str
    place: int


class OrphanCandidates:
    """Candidates by name of the owner. Each takes few bytes, because there may be very many. `listed` counts all listed
    resources; `unidentified` counts those that would be candidates if the list had contained their id."""

    def __init__(self) -> None:
        self._found: dict[str, list[OrphanCandidate]] = {}
        self._others: set[str] = set()
        self.listed = self.unidentified = 0

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[tuple[str, OrphanCandidate]]:
        return ((owner, one) for owner, some in self._found.items() for one in some)

    def names(self) -> set[str]:
        """Owners of all listed resources, candidates or not."""
        return self._found.keys() | self._others

    def ids(self, owner: str, place: int) -> str:
        """Of this owner's candidate in this place; empty if there is none."""
        return next((one.ids for one in self._found.get(owner, ()) if one.place == place), "")

    def put(self, owner: str, place: int, ids: str) -> None:
        """Adds the owner's candidate in this place, or replaces its ids."""
        some = self._found.setdefault(owner, [])
        for number, one in enumerate(some):
            if one.place == place:
                some[number] = OrphanCandidate(ids, place)
                return
        some.append(OrphanCandidate(ids, place))

    def put_other(self, owner: str) -> None:
        """A resource of this owner was listed that is no candidate."""
        if owner not in self._found:
            self._others.add(owner)

    def remove(self, owner: str) -> None:
        self._found.pop(owner, None)


class OrphanPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a source's resources are, such as an account or a group. `name` is in lower case, without spaces, and
    becomes part of the uids of deletions; `kept` is the place of decisions to keep resources, which may be known only
    after `candidates` has listed; `title` is for tables, `fields` for JSON."""

    name: str
    kept: str
    title: str
    fields: Mapping[str, str] = {}


class SweepSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the source is swept, how often, and how long a candidate must be orphaned before it is published."""

    enabled: bool
    every: timedelta
    age: timedelta


class SweepWords(msgspec.Struct, frozen=True, kw_only=True):
    """Words for messages and for `knell sweep`: an owner and several, the column of places, the listing methods, what
    becomes of a candidate whose place is not proven to be this cluster's, and how to switch the sweep off.
    `owner_field` is the owner's name in JSON."""

    owner: str
    owners: str
    place: str
    doubted: str
    disable: str
    methods: Mapping[str, str] = {}
    owner_field: str = "owner"


class OrphanFinder(Protocol):
    """What a collector brings so that its sources are swept. It only reads."""

    @property
    def words(self) -> SweepWords: ...

    def schedule(self, source: str) -> SweepSchedule: ...

    def places(self, source: str) -> Sequence[OrphanPlace]:
        """Where the source's resources are, by its settings; candidates name a place by its number here."""

    def methods(self, source: str) -> Sequence[str]:
        """Listing methods in the order in which they are tried. Only the last one is current: a resource that it lists
        exists."""

    async def candidates(self, source: str, method: str, progress: Progress) -> OrphanCandidates:
        """Everything in the source's places that may be an orphan. Raises ListingFailed if the lists are not
        complete."""

    def is_other(self, before: str, now: str) -> bool:
        """Whether the ids `now` prove another resource than the ids `before`."""

    def has_more(self, published: str, now: str) -> bool:
        """Whether the ids `now` have a resource that a deletion for the ids `published` does not remove."""

    def needs_proof(self, ids: str) -> bool:
        """Whether a candidate with these ids is published only in a proven place."""

    async def proven_places(self, source: str, cluster: SourceCluster) -> set[int]:
        """Numbers of the places that are proven to be this cluster's, by what runs there. Raises ClusterError."""

    def event_data(self, source: str, one: OrphanCandidate) -> str:
        """What the collector needs to know of an orphan, for its event."""

    async def is_absent(self, source: str, owner: str) -> bool:
        """Whether reads in all places show that nothing of this owner is left; False if that is not known."""

    def kind(self, ids: str) -> str:
        """What a candidate with these ids is, for people."""

    def doubt(self, count: int) -> str:
        """Warning about candidates whose place is not proven."""

    def unidentified(self, count: int, method: str) -> str:
        """Warning about listed resources without an id."""
