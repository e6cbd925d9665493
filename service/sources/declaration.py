"""Declaration of a source: everything that the control side knows of one collector's objects. Watching, policy, the
settings, the roles and the commands read it, and name no collector themselves."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from service.contract.names import FINALIZER
from service.policy.decisions import DefaultPolicy, PolicyDecision

Mode = Literal["finalizer", "observe"]

Recognise = Callable[[bytes], str]
"""Turns the JSON of an object into compact data that is kept when the object is gone. Raises Unrecognisable."""

Pause = Callable[[Mapping[str, str]], PolicyDecision | None]
"""`paused` or `retain` from the annotations of an object, as for one that moves to another cluster; else None."""

S = TypeVar("S", bound=msgspec.Struct)


class Unrecognisable(ValueError):
    """The collector can't read from the object what it owns; its deletion is held."""


class NotRecognisedYet(Unrecognisable):
    """Expected for a while, as for an object that is not created outside yet or is going: it is not reported, and what
    was recognised before counts."""


def recognise_nothing(_raw: bytes) -> str:
    """For objects that own nothing outside, and those that are read again before anything is removed."""
    return ""


class ConfiguredSource(Protocol):
    """What a section of the settings may ask of a source that the settings name."""

    @property
    def collector(self) -> str: ...

    @property
    def resource(self) -> str: ...


class Sections(Protocol):
    """The sections of the settings that sources declare."""

    def section(self, kind: type[S]) -> S: ...


@runtime_checkable
class SectionSettings(Protocol):
    """A section that checks its own values."""

    def contradictions(self, sources: Mapping[str, ConfiguredSource]) -> list[tuple[str, str]]:
        """Contradictions between its values, and with the sources of the settings, as pairs of path and reason."""


class Section(msgspec.Struct, frozen=True):
    """A section of the settings: its YAML key, and its type, whose fields all have defaults. Sources that share a
    section declare the same type."""

    name: str
    type: type[msgspec.Struct]


class Switch(msgspec.Struct, frozen=True):
    """A third-party annotation that opts an object in or out like knell.dev/gc, with values of its own."""

    name: str
    enabled: str
    disabled: str


class TaskChoice(msgspec.Struct, frozen=True):
    """Tasks, which say what is removed with an object. Its annotation, a comma list, replaces those that the settings
    choose; one that the settings do not allow has the object held. `allowed_by` is the setting that allows them."""

    annotation: str
    tasks: tuple[str, ...]
    allowed_by: str
    allowed: Callable[[Sections], Sequence[str]]
    chosen: Callable[[Sections], Sequence[str]]


class AccountAnnotation(msgspec.Struct, frozen=True):
    """Annotation with the account that an object's resources are in. Its whole value matches `pattern`; `form` says in
    words what that is, such as `12 digits`."""

    name: str
    pattern: str
    form: str


class CannotRead(Exception):
    """An object can't be read now; the message says why."""


ReadObject = Callable[[str, str, str], Awaitable[bytes | None]]
"""Reads an object by resource, namespace and name; None if there is none. Raises CannotRead, or ClusterError."""


class ReadCluster(Protocol):
    """Reads objects by resource and namespace. Raises CannotRead, or ClusterError."""

    async def get(self, resource: str, namespace: str, name: str) -> bytes | None:
        """None if there is none."""

    async def list(self, resource: str, namespace: str) -> Sequence[bytes]: ...


ReadDefaultPolicy = Callable[[ReadCluster, Sections, str], Awaitable[DefaultPolicy]]
"""Reads the default policy for the objects of a resource where they are. Raises CannotRead, or ClusterError."""


class MarkingRule(msgspec.Struct, frozen=True):
    """When an object may get the finalizer. `owner` reads the name of its owner from an object: empty if there is none,
    None if it can't be decoded. One that reads `spec` needs whole objects, which are watched only for a source with
    a `recognise` of its own. `objection` is called right before the finalizer is added, with the namespace and that
    owner: why it may not be added now; empty if it may."""

    owner: Callable[[bytes | msgspec.Raw], str | None]
    objection: Callable[[ReadObject, str, str | None], Awaitable[str]]


class Rule(msgspec.Struct, frozen=True):
    """A permission in a cluster; with `names` only for these objects."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


class NamespaceRules(msgspec.Struct, frozen=True):
    """Permissions in a namespace that the settings name, in a role of its own with this suffix."""

    suffix: str
    namespace: Callable[[Sections], str]
    rules: tuple[Rule, ...]


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions that a source needs beside those for its own objects. `definitions` are CRDs that need not be
    installed: it is read whether they are. `cluster` are for the whole cluster, `objects` for the namespaces of the
    source. With `lists_everywhere` its objects are listed in all namespaces, whichever it is about."""

    definitions: tuple[str, ...] = ()
    cluster: tuple[Rule, ...] = ()
    objects: tuple[Rule, ...] = ()
    namespaces: tuple[NamespaceRules, ...] = ()
    lists_everywhere: bool = False


class KeptPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Places of resources that a provider keeps with the service's tag. A place is written as `form` says, begins with
    the name of the provider, and matches `pattern`. `untag` is the command by which a person takes the tag off, by
    place, kind and id. These are the same for all sources of a provider; `configured` are the places that the settings
    name for this source."""

    provider: str
    form: str
    pattern: str
    untag: Callable[[str, str, str], str]
    configured: Callable[[Sections], Sequence[str]] | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One source.

    name: what the settings call `collector`.
    components: module whose function `components` opens the collector; empty if nothing is collected.
    aws_policy: module whose function `aws_policy` returns the IAM policy for settings, or without settings for
        everything that they can allow; empty without resources on AWS.
    resources: the resources (plural.group) that a source of the settings may name; none means any. `*.DOMAIN` stands
        for those of all groups in the domain.
    groups: by API group, the resources that `*.GROUP` in the settings stands for.
    finalizer: what holds its objects until their resources are gone.
    modes: which modes the settings may choose: by finalizer, or by observing only.
    switch: a third-party annotation that opts in and out beside knell.dev/gc.
    tasks: the tasks that an object's annotation chooses among, for `knell gc configure`.
    account: the annotation that names an object's account, for `knell gc enable --account`.
    feature: the feature flag that must be on; empty means none.
    sections: its sections of the settings.
    annotations: third-party annotations that policy reads; all others are dropped when an object is decoded.
    pause: finds paused and moving objects by their annotations.
    recognise: what is kept of an object to find its resources once it is gone.
    remembers: the inventory has what was recognised of its objects in finalizer mode as well. A missing finalizer is
        then no withdrawal: the deletion goes on by that record once the object is proven gone. What was never
        recognised is for the collector to hold.
    default_policy: reads the default deletion policy of its objects, in place of that of the settings.
    snapshots: its resources whose deletion policy may be `snapshot`.
    rules: permissions beside those for its own objects.
    may_mark: when an object may get the finalizer; None means always.
    swept: orphans are searched for. `modes` must be ("observe",): only then the inventory remembers kept objects.
    kept: places where its provider tags resources that are kept on purpose.
    capi_kinds: for objects of Clusters of Cluster API: resources by kind, by which a Cluster is followed to them.
    """

    name: str
    components: str = ""
    aws_policy: str = ""
    resources: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    finalizer: str = FINALIZER
    modes: tuple[Mode, ...] = ("finalizer", "observe")
    switch: Switch | None = None
    tasks: TaskChoice | None = None
    account: AccountAnnotation | None = None
    feature: str = ""
    sections: tuple[Section, ...] = ()
    annotations: frozenset[str] = frozenset()
    pause: Pause | None = None
    recognise: Recognise = recognise_nothing
    remembers: bool = False
    default_policy: ReadDefaultPolicy | None = None
    snapshots: frozenset[str] = frozenset()
    rules: AccessRules = AccessRules()
    may_mark: MarkingRule | None = None
    swept: bool = False
    kept: KeptPlaces | None = None
    capi_kinds: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def capi(self) -> bool:
        """Whether its objects belong to Clusters of Cluster API."""
        return bool(self.capi_kinds)
