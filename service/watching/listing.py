"""One complete list of a strand, page by page, so that memory stays flat however many objects there are.
Nothing is concluded before the last page: a list that expires in the middle starts over."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from service.engine.inventory import Inventory
from service.kubernetes import Change, Expired, Seen, Served
from service.watching.assignment import Assignment
from service.watching.reporting import Report
from service.watching.strand import Strand

_TRIES: Final = 10
LEAP: Final = 10_000_000
RATE: Final = 10_000
"""Changes that there may have been since the last list: so many, and so many more per second. etcd writes no faster,
and a restored one is moved by 1,000,000,000 (`etcdutl snapshot restore --bump-revision 1000000000`)."""
VERSION_FIELD: Final = "resource_version"


class Begun(NamedTuple):
    """A list that begins: its number, the name of what is watched, and what is known of the source so far."""

    number: int
    scope: str
    facts: dict[str, str]


class Doubt(NamedTuple):
    """`why` is empty where there is none; with `restored` it is about the whole cluster."""

    why: str
    restored: bool = False


class Duties(Protocol):
    """What a source's mode does with the objects of one strand."""

    owned: int

    @property
    def selector(self) -> str: ...
    async def begin(self, served: Served, begun: Begun) -> None: ...
    async def page(self, served: Served, items: Sequence[Seen]) -> None: ...
    async def end(self, served: Served, hold: str) -> None: ...
    def passing(self, change: Change) -> None: ...
    async def changes(self, served: Served, latest: Sequence[Change]) -> None: ...


class Listing:
    """`passing` is a list after which nobody watches: nothing of where it stood is kept."""

    def __init__(
        self, strand: Strand, duties: Duties, store: Inventory, report: Report, scope: str, *, passing: bool = False
    ) -> None:
        self._strand, self._duties = strand, duties
        self._store, self._report, self._scope = store, report, scope
        self._passing = passing

    @property
    def _assignment(self) -> Assignment:
        return self._strand.assignment

    async def run(self, served: Served) -> str:
        """The resource version to watch from."""
        for tried in range(_TRIES):
            try:
                return await self._once(served)
            except Expired as error:
                self._report.said("list expired in the middle, starting over", tried=tried + 1, reason=str(error))
        raise Expired(f"the list of {served.resource} expired {_TRIES} times before it was complete")

    async def _once(self, served: Served) -> str:
        witness = self._assignment.witness
        # Before the list: a restore that a person accepts meanwhile is not brought up again by it.
        seen = await witness.seen() if witness is not None else ""
        facts = await self._store.facts()
        if facts.get("scope", self._scope) != self._scope:
            self._report.warned("scope of the source changed, its inventory begins anew", before=facts["scope"])
        began = await self._store.server_ms()
        scope = await self._store.begin_scope(self._scope, facts)
        await self._duties.begin(served, Begun(await self._store.next_number(), scope, facts))
        version = ""
        limit, listed = self._assignment.watch.page, 0
        namespace = self._strand.namespace
        cluster, small = self._assignment.cluster, self._assignment.metadata_only
        async for page in cluster.pages(served, namespace, self._duties.selector, limit, metadata_only=small):
            version = page.resource_version
            for what in page.unreadable:
                self._report.unreadable(what)
            items = [seen for seen in page.items if self._strand.includes(seen.namespace)]
            listed += len(items)
            await self._duties.page(served, items)
            del page, items
        doubt = doubt_of(facts, version, began) if self._same_versions(facts) else Doubt("")
        if doubt.restored and witness is not None:
            doubt = doubt._replace(why=await witness.suspect(seen, doubt.why))
        await self._duties.end(served, doubt.why)
        if self._passing:
            return version
        self._assignment.tally.listed += listed
        self._assignment.tally.relists += 1
        self._assignment.count(self._strand.label, owned=self._duties.owned)
        await self._note(facts, version, began, doubt.why)
        return version

    def _same_versions(self, facts: Mapping[str, str]) -> bool:
        """Versions of another cluster, or of a resource that another server keeps, can't be compared."""
        assignment = self._assignment
        known = facts.get("cluster", assignment.cluster_uid), facts.get("resource", assignment.settings.resource)
        return known == (assignment.cluster_uid, assignment.settings.resource)

    async def _note(self, facts: dict[str, str], version: str, began: int, doubt: str) -> None:
        """Where the watch begins. Versions of other strands that lie ahead of it belong to a time that was undone."""
        if doubt:
            self._report.warned("deletions found by this list are held", reason=doubt)
        if doubt or not self._same_versions(facts):
            await self._store.clear(*(field for field in facts if is_version(field)))
        await self._store.note(
            {
                self._strand.field(VERSION_FIELD): version,
                self._strand.field("listed_at"): began,
                self._strand.owned_field: self._duties.owned,
                "scope": self._scope,
                "cluster": self._assignment.cluster_uid,
                "resource": self._assignment.settings.resource,
                "mode": self._assignment.settings.mode,
            }
        )


def doubt_of(facts: Mapping[str, str], version: str, began: int) -> Doubt:
    """Why nothing may be told from what is missing in a list of this version that began at this time; `facts` are what
    is known of the source from before it."""
    before, label = _latest(facts)
    if before is None:
        return Doubt("")
    if not version.isdecimal():
        return Doubt(f"the list's resource version {version[:40]!r} can't be compared with the last one seen, {before}")
    if int(version) < before:
        return Doubt(
            f"the list is of resource version {version}, older than the last one seen, {before}: "
            "the cluster was restored from a backup",
            restored=True,
        )
    if int(version) - before > _most_changes(facts.get(f"listed_at{label}", ""), began):
        return Doubt(
            f"the list is of resource version {version}, and the last one seen was {before}: so many changes can't "
            "have been made since, so that the cluster was restored from a backup",
            restored=True,
        )
    return Doubt("")


def _most_changes(listed: str, began: int) -> float:
    """How far the resource version may have moved since a list; without end where that is not known."""
    return LEAP + RATE * max(0, began - int(listed)) / 1000 if listed.isdecimal() else math.inf


def is_version(field: str) -> bool:
    """Whether a field of a source's hash says where a strand of it stood."""
    return field == VERSION_FIELD or field.startswith(f"{VERSION_FIELD}@")


def _latest(facts: Mapping[str, str]) -> tuple[int | None, str]:
    """The highest resource version that any strand of this source has seen, and how that strand's fields end."""
    seen = [
        (int(value), field.removeprefix(VERSION_FIELD))
        for field, value in facts.items()
        if is_version(field) and value.isdecimal()
    ]
    return max(seen, default=(None, ""))
