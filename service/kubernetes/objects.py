"""Kubernetes objects as far as they are decoded: identity, labels, policy annotations, finalizers and times; the rest
stays raw JSON. Also pages of lists, events of watches, and the paths of resources."""

from typing import Final, Literal
from urllib.parse import quote

import msgspec

NOTHING: Final = msgspec.Raw(b"")


class KubeObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of a list, watch, GET or patch. Times are milliseconds since the epoch, 0 if there is none.
    `annotations` has only those that policy reads."""

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
    # A slice of the response: keeping it keeps the whole page in memory.
    raw: msgspec.Raw = NOTHING

    def without_raw(self) -> "KubeObject":
        """For objects that are kept: without a reference to the page."""
        return msgspec.structs.replace(self, raw=NOTHING)

    @property
    def going(self) -> bool:
        return self.deleting > 0


class ListPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. A list is complete if its iterator ends without an error and `unreadable`, which names items
    that can't be decoded, is empty on every page."""

    resource_version: str
    items: list[KubeObject]
    unreadable: tuple[str, ...] = ()
    remaining: int = 0


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a watch. A bookmark has no object. For an object that can't be decoded `unreadable` is the reason,
    and `seen` is None unless its uid and name can be read."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    resource_version: str
    seen: KubeObject | None = None
    unreadable: str = ""


class ServedResource(msgspec.Struct, frozen=True, kw_only=True):
    """How a resource is served by a cluster. `resource` is "plural.group", or "pods" for the core group."""

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
        """Of the collection, in all namespaces if none is given, or of one object."""
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


# Built into every server: these need no discovery.
NAMESPACES: Final = ServedResource(
    resource="namespaces", group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, status=True
)
SECRETS: Final = ServedResource(
    resource="secrets", group="", version="v1", plural="secrets", kind="Secret", namespaced=True, status=False
)
CONFIGMAPS: Final = ServedResource(
    resource="configmaps", group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, status=False
)
LEASES: Final = ServedResource(
    resource="leases.coordination.k8s.io",
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    status=False,
)
EVENTS: Final = ServedResource(
    resource="events.events.k8s.io",
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    namespaced=True,
    status=False,
)
CRDS: Final = ServedResource(
    resource="customresourcedefinitions.apiextensions.k8s.io",
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    status=True,
)
