"""Assignment of a share of a source to this replica: settings, cluster, Lease and counters, and the list scopes it has.
Every part of the watch side gets it, and calls `require_lease` before it publishes or patches anything."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from service.engine.installation import Installation
from service.engine.restore_detection import RestoreDetector
from service.kubernetes import KubeObject, KubernetesClient, RecentObjects, ServedResource, WatchEvent
from service.settings import PolicySettings, SourceSettings, WatchSettings
from service.sources.declaration import Recognise, Source, recognise_nothing
from service.sources.registry import source_named
from service.watching.namespace_watch import NamespaceWatch

VERSION_FIELD: Final = "resource_version"
"""Field of the source's hash in Redis for the resource version up to which a list scope is published."""


class LeaseNotHeld(Exception):
    """This replica no longer holds the Lease of the share: nothing is published or patched until it does again."""


@dataclass(slots=True)
class SourceCounters:
    """`held` (deletions that are not believed) and `owned` (objects in scope) are current numbers; all others are
    counted since the start."""

    listed: int = 0
    events: int = 0
    published: int = 0
    marked: int = 0
    unmarked: int = 0
    relists: int = 0
    resumed: int = 0
    problems: int = 0
    unreadable: int = 0
    missed: int = 0
    withdrawn: int = 0
    held: int = 0
    owned: int = 0


def _everything(_namespace: str) -> bool:
    return True


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`enabled_at` is the time of first enabling in milliseconds: older objects are left alone unless they are adopted.

    `part` names the share of a divided source, such as `1/3`. `share` says whether a namespace belongs to it.
    `namespaces` reports changed annotations of Namespaces; without it they are noticed later. `recent_objects` are for
    a planner in the same process. `restore_detector` detects a cluster that was restored from a backup; it needs a
    Lease.
    """

    name: str
    settings: SourceSettings
    cluster: KubernetesClient
    cluster_uid: str
    installation: Installation
    recognise: Recognise
    enabled_at: int = 0
    share: Callable[[str], bool] = _everything
    lease_held: Callable[[], bool] = _always
    part: str = ""
    namespaces: NamespaceWatch | None = None
    recent_objects: RecentObjects | None = None
    restore_detector: RestoreDetector | None = None
    counters: SourceCounters = field(default_factory=SourceCounters)
    _owned: dict[str, int] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)

    @property
    def policy(self) -> PolicySettings:
        return self.installation.settings.policy

    @property
    def watch(self) -> WatchSettings:
        return self.installation.settings.watch

    @property
    def declaration(self) -> Source:
        return source_named(self.settings.collector)

    @property
    def metadata_only(self) -> bool:
        """Whether only the metadata of objects is read."""
        return self.recognise is recognise_nothing

    @property
    def observes(self) -> bool:
        return self.settings.mode == "observe"

    def count(self, list_scope: str, *, owned: int | None = None, held: int | None = None) -> None:
        """Sets the current numbers of one list scope; the counters hold the sums."""
        if owned is not None:
            self._owned[list_scope] = owned
            self.counters.owned = sum(self._owned.values())
        if held is not None:
            self._held[list_scope] = held
            self.counters.held = sum(self._held.values())

    async def doubt(self) -> str:
        """Why objects that were found missing before this call do not count as deleted; empty if they do.
        Raises ClusterError."""
        return await self.restore_detector.check() if self.restore_detector is not None else ""

    def require_lease(self) -> None:
        """To be called right before every write that others see. Raises LeaseNotHeld."""
        if not self.lease_held():
            raise LeaseNotHeld(f"the Lease of source {self.name} is not held")


@dataclass(frozen=True, slots=True)
class ListScope:
    """Objects of a source that are listed and watched together, at one resource version: those of one namespace, or all
    of the share (None). What Redis keeps of them is named after the label."""

    assignment: Assignment
    namespace: str | None

    @property
    def label(self) -> str:
        """Empty for the only list scope of an undivided source."""
        return ":".join(word for word in (self.assignment.part, self.namespace) if word)

    def field(self, name: str) -> str:
        """The name of a field of this list scope in the source's hash."""
        return f"{name}@{self.label}" if self.label else name

    @property
    def owned_field(self) -> str:
        """The guard adds up `owned` and all fields that begin with `owned.`."""
        return f"owned.{self.label}" if self.label else "owned"

    def includes(self, namespace: str) -> bool:
        return self.assignment.share(namespace) and self.namespace in (None, namespace)


def is_stale_field(field: str, assignment: Assignment) -> bool:
    """Whether a field of the source's hash belongs to a list scope that no longer exists: other namespaces or
    shares."""
    base, _, label = field.partition(".") if field.startswith("owned.") else field.partition("@")
    if base not in ("owned", "held", "held_why"):
        return False
    part, _, namespace = label.rpartition(":") if ":" in label or "/" not in label else (label, "", "")
    _, _, parts = assignment.part.partition("/")
    return part.partition("/")[2] != parts or (namespace or None) not in (assignment.settings.namespaces or (None,))


def list_scopes(assignment: Assignment) -> list[ListScope]:
    """Those of this share: one, or one for each namespace that the settings name."""
    named = assignment.settings.namespaces
    if not named:
        return [ListScope(assignment, None)]
    return [ListScope(assignment, one) for one in dict.fromkeys(named) if assignment.share(one)]


class ListStart(NamedTuple):
    """The start of a list: its number, the name of the scope, and the fields of the source's hash before it."""

    number: int
    scope: str
    facts: dict[str, str]


class ObjectHandler(Protocol):
    """What a mode does with the objects of one list scope: see finalizer_mode.py and observe_mode.py. `handle_skipped`
    gets an event that a later one of the same batch replaces."""

    @property
    def owned(self) -> int: ...
    @property
    def selector(self) -> str: ...
    async def begin_list(self, served: ServedResource, begun: ListStart) -> None: ...
    async def handle_page(self, served: ServedResource, items: Sequence[KubeObject]) -> None: ...
    async def end_list(self, served: ServedResource, hold: str) -> None: ...
    def handle_skipped(self, change: WatchEvent) -> None: ...
    async def handle_events(self, served: ServedResource, latest: Sequence[WatchEvent]) -> None: ...
