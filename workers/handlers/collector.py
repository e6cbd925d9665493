"""Collector protocol, and what collectors get: the reference to a deletion's object, and the facts just read about it.
Where to act comes from these facts and from settings, never from an event."""

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

import msgspec

from service.contract import Event, Hold, Plan
from service.kubernetes import KubeObject
from service.policy.decisions import DefaultPolicy
from service.settings import FeatureSettings, SourceSettings

NAMESAKE_REMARK: Final = "; another object has its name by now"
"""End of the reason in a deletion's record if another object with the same name existed when it was planned."""


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """Reference to the object of a deletion, from the deletion's record; a hint until the object has been read. `at` is
    when its deletion began; `had_namesake` says that another object of that name existed when it was planned; `kept`
    says why some of its resources stay. An `orphan`, found by a sweep, has no object: `name` is that of the missing
    owner, and `data` is what the sweep saw."""

    deletion: str
    source: str
    cluster: str
    resource: str
    uid: str
    name: str
    namespace: str = ""
    at: int = 0
    withdrawn: str = ""
    kept: str = ""
    had_namesake: bool = False
    orphan: bool = False
    data: str = ""

    @property
    def label(self) -> str:
        """Name for messages."""
        return f"{self.resource} {self.namespace}/{self.name}" if self.namespace else f"{self.resource} {self.name}"


def ref_of_event(event: Event) -> ObjectRef:
    return ObjectRef(
        deletion=event.deletion, source=event.source, cluster=event.cluster, resource=event.resource, uid=event.uid,
        name=event.name, namespace=event.namespace, at=event.at, orphan=event.reason == "orphan", data=event.data,
    )  # fmt: skip


class ObjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is being deleted, or an observed one that is gone, as just read.

    `live` is the object itself, None if it is gone; `recognises` is then what the inventory stored about it, or what a
    sweep saw of an orphan (which has neither labels nor annotations). For a source that `remembers`, the inventory's
    data are there for a live object, too. With `namesake` another object with the same name exists: resources
    recognised by name alone are not ours. `default_policy` is that of a source which reads its own; with `snapshot`
    policy wants a snapshot before anything is deleted.
    """

    ref: ObjectRef
    settings: SourceSettings
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    namespace_annotations: Mapping[str, str]
    features: FeatureSettings = FeatureSettings()
    live: KubeObject | None = None
    recognises: str = ""
    namesake: bool = False
    default_policy: DefaultPolicy | None = None
    snapshot: bool = False

    @property
    def going_since(self) -> int:
        """The deletionTimestamp in milliseconds; for an observed object when the inventory saw that it was gone."""
        return self.live.deleting if self.live is not None else self.ref.at


class Collector(Protocol):
    """Determines which outside resources an object owns; reads only. Sources name it in their settings.

    With `metadata_only` it needs only the object's name, labels and our annotations.
    """

    @property
    def name(self) -> str: ...

    @property
    def metadata_only(self) -> bool: ...

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        """The `why` of a plan is a remark for the operator."""


@runtime_checkable
class HasObjections(Protocol):
    """A collector that can object to a deletion; it is asked before every destructive call."""

    async def objections(self, facts: ObjectFacts) -> Hold | None:
        """Why nothing of this object may be deleted right now, or None. Raises if it can't tell."""


class EmptyCollector:
    """Collector of sources whose objects own nothing outside their cluster."""

    metadata_only = True

    def __init__(self, name: str = "none") -> None:
        self.name = name

    async def collect(self, facts: ObjectFacts) -> Plan:
        del facts
        return Plan([])
