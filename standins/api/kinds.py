"""What is served: the built-in kinds, and the shape in which a CustomResourceDefinition adds its own.
Flags tell where kinds differ on the real server: unconditional updates, generations, what a delete answers."""

import re
from dataclasses import dataclass, field
from typing import Final

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


@dataclass(frozen=True, slots=True)
class Version:
    name: str
    served: bool = True
    storage: bool = True
    status: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    group: str
    plural: str
    kind: str
    namespaced: bool = True
    versions: tuple[Version, ...] = (Version("v1"),)
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    custom: bool = False
    unconditional_update: bool = False
    generations: bool = False
    returns_deleted: bool = False
    # Fields that a field selector may name besides metadata.name and metadata.namespace.
    fields: tuple[str, ...] = ()
    subresources: tuple[str, ...] = field(default=())
    # The table its objects are in, where that is another kind's.
    table: str = ""

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def stored_in(self) -> str:
        return self.table or self.name

    @property
    def lists_as(self) -> str:
        return self.list_kind or f"{self.kind}List"

    def version(self, name: str) -> Version | None:
        """The version of that name if it is served."""
        return next((one for one in self.versions if one.name == name and one.served), None)

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


_WITH_STATUS = (Version("v1", status=True),)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "type",
)
_RBAC = "rbac.authorization.k8s.io"

NAMESPACES: Final = Resource(
    "",
    "namespaces",
    "Namespace",
    namespaced=False,
    versions=_WITH_STATUS,
    short_names=("ns",),
    unconditional_update=True,
    returns_deleted=True,
    fields=("status.phase",),
    subresources=("finalize",),
)
ACCOUNTS: Final = Resource(
    "",
    "serviceaccounts",
    "ServiceAccount",
    short_names=("sa",),
    returns_deleted=True,
    subresources=("token",),
)
EVENTS: Final = Resource("", "events", "Event", short_names=("ev",), unconditional_update=True, fields=_EVENT_FIELDS)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    versions=_WITH_STATUS,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    generations=True,
)
ROLES: Final = Resource(_RBAC, "roles", "Role", unconditional_update=True)
CLUSTER_ROLES: Final = Resource(_RBAC, "clusterroles", "ClusterRole", namespaced=False, unconditional_update=True)
BINDINGS: Final = Resource(_RBAC, "rolebindings", "RoleBinding", unconditional_update=True)
CLUSTER_BINDINGS: Final = Resource(
    _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False, unconditional_update=True
)

BUILT_IN: Final = (
    NAMESPACES,
    ACCOUNTS,
    EVENTS,
    DEFINITIONS,
    ROLES,
    CLUSTER_ROLES,
    BINDINGS,
    CLUSTER_BINDINGS,
    Resource("", "configmaps", "ConfigMap", short_names=("cm",), unconditional_update=True),
    Resource("", "secrets", "Secret", unconditional_update=True, fields=("type",)),
    Resource(
        "",
        "nodes",
        "Node",
        namespaced=False,
        versions=_WITH_STATUS,
        short_names=("no",),
        unconditional_update=True,
        fields=("spec.unschedulable",),
    ),
    Resource(
        "",
        "pods",
        "Pod",
        versions=_WITH_STATUS,
        short_names=("po",),
        categories=("all",),
        unconditional_update=True,
        generations=True,
        returns_deleted=True,
        fields=("spec.nodeName", "status.phase"),
    ),
    Resource("coordination.k8s.io", "leases", "Lease"),
    Resource(
        "events.k8s.io",
        "events",
        "Event",
        short_names=("ev",),
        unconditional_update=True,
        fields=_EVENT_FIELDS,
        table=EVENTS.name,
    ),
)

OWN_GROUPS: Final = frozenset(resource.group for resource in BUILT_IN)


def preference(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as discovery does: v2 before v1 before v1beta1 before v1alpha1 before anything else."""
    found = _VERSION.match(version)
    if found is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found.group(2)]
    return (stage, -int(found.group(1)), -int(found.group(3) or 0), version)
