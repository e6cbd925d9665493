"""What is kept of a Kubernetes object: who it is, its marks and its times; the rest stays undecoded text.
Also what lists and watches are made of, and how a resource is addressed."""

from typing import Final, Literal
from urllib.parse import quote

import msgspec

NOTHING: Final = msgspec.Raw(b"")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An object as a list, a watch or a GET showed it. Times are milliseconds of the epoch, 0 where there is none."""

    uid: str
    name: str
    namespace: str = ""
    resource_version: str = ""
    created: int = 0
    deleting: int = 0
    generation: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    # A slice of the answer it came in: whoever keeps it keeps the whole page alive.
    raw: msgspec.Raw = NOTHING

    def without_raw(self) -> "Seen":
        """The form to keep: nothing of the page survives in it."""
        return msgspec.structs.replace(self, raw=NOTHING)

    @property
    def going(self) -> bool:
        return self.deleting > 0


# A Live object came from a GET or from the answer to a change; its raw text is always there.
Live = Seen


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. A list is complete when its iterator ends without an error, and every page of it names
    the same resource version. An item that can't be read makes it incomplete: it is named in `unreadable`."""

    resource_version: str
    items: list[Seen]
    unreadable: tuple[str, ...] = ()
    remaining: int = 0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch. A bookmark has no object; an object that can't be decoded has a reason in `unreadable`,
    and `seen` is None unless at least its uid and name could be read."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    resource_version: str
    seen: Seen | None = None
    unreadable: str = ""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """How a resource is served by one cluster at this moment. `resource` is "plural.group", "pods" for core ones."""

    resource: str
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    status: bool
    verbs: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Of the collection (in all namespaces where none is given), or of one object."""
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.resource} are namespaced; {name!r} was asked for without a namespace")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


# What we ourselves work with, and what no server lacks: these need no discovery.
NAMESPACES: Final = Served(
    resource="namespaces", group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, status=True
)
SECRETS: Final = Served(
    resource="secrets", group="", version="v1", plural="secrets", kind="Secret", namespaced=True, status=False
)
CONFIGMAPS: Final = Served(
    resource="configmaps", group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, status=False
)
LEASES: Final = Served(
    resource="leases.coordination.k8s.io",
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    status=False,
)
EVENTS: Final = Served(
    resource="events.events.k8s.io",
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    namespaced=True,
    status=False,
)
CRDS: Final = Served(
    resource="customresourcedefinitions.apiextensions.k8s.io",
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    status=True,
)
