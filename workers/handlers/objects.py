"""What is known of the object that a deletion is about: how its record names it, and what was read of it just now.
A collector turns these facts into targets; where to act comes from here and from settings, never from an event."""

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

import msgspec

from service.contract import Event, Hold, Plan
from service.kubernetes import Live
from service.settings import FeatureSettings, SourceSettings

BESIDE: Final = "; another object has its name by now"
"""How the record of a deletion says that it was planned while a namesake lived."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """How a deletion's record names its object; a hint until the object has been read. `at` is when it began to go,
    `beside` says that a namesake lived already when it was planned, `kept` why something of it stays. For an `orphan`,
    which a sweep found, there is no
    object: the name is that of the one that should own it, and `data` is what the sweep saw."""

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
    beside: bool = False
    orphan: bool = False
    data: str = ""

    @property
    def object(self) -> str:
        """As people name it."""
        return f"{self.resource} {self.namespace}/{self.name}" if self.namespace else f"{self.resource} {self.name}"


def about_event(event: Event) -> About:
    return About(
        deletion=event.deletion, source=event.source, cluster=event.cluster, resource=event.resource, uid=event.uid,
        name=event.name, namespace=event.namespace, at=event.at, orphan=event.reason == "orphan", data=event.data,
    )  # fmt: skip


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is going, or an observed one that is gone, as it was read just now.

    `live` is the object itself, None for one that is gone; `recognises` is what the inventory kept of that one, or what
    a sweep saw of an orphan, which has neither labels nor annotations. With
    `namesake` an object of the same name and another uid lives: what is recognised by name alone is not ours.
    """

    about: About
    settings: SourceSettings
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    namespace_annotations: Mapping[str, str]
    features: FeatureSettings = FeatureSettings()
    live: Live | None = None
    recognises: str = ""
    namesake: bool = False

    @property
    def going_since(self) -> int:
        """The deletionTimestamp in milliseconds; for an observed object when the inventory saw that it was gone."""
        return self.live.deleting if self.live is not None else self.about.at


class Collector(Protocol):
    """Says which outside resources an object owns; reads only. Its name stands in the settings of sources.

    With `metadata_only` the object comes without its text: its name, labels and our annotations are all that it needs.
    """

    @property
    def name(self) -> str: ...

    @property
    def metadata_only(self) -> bool: ...

    async def collect(self, facts: Facts) -> Plan | Hold:
        """Where a plan has a `why`, it is a remark for whoever reads of it."""


@runtime_checkable
class Objecting(Protocol):
    """A collector that knows more than policy of what must not be destroyed: it is asked each time before."""

    async def objects_to(self, facts: Facts) -> Hold | None:
        """What stands against any destructive call for this object right now, or None. Raises where it can't tell."""
