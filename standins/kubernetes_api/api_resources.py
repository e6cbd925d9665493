"""Served resources: the built-in ones and those of CustomResourceDefinitions, with their registry.
Flags describe how resources differ on the real server: unconditional updates, generations, the response to a delete."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


@dataclass(frozen=True, slots=True)
class ApiVersion:
    name: str
    served: bool = True
    storage: bool = True
    status: bool = False


@dataclass(frozen=True, slots=True)
class ApiResource:
    group: str
    plural: str
    kind: str
    namespaced: bool = True
    versions: tuple[ApiVersion, ...] = (ApiVersion("v1"),)
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
    # The table of its objects, if it is that of another resource.
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

    @property
    def preferred(self) -> str:
        """The version that controllers use."""
        return min((one.name for one in self.versions if one.served), key=preference)

    def version(self, name: str) -> ApiVersion | None:
        """The version of that name if it is served."""
        return next((one for one in self.versions if one.name == name and one.served), None)

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


_WITH_STATUS = (ApiVersion("v1", status=True),)
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
_ADMISSION = "admissionregistration.k8s.io"

NAMESPACES: Final = ApiResource(
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
ACCOUNTS: Final = ApiResource(
    "",
    "serviceaccounts",
    "ServiceAccount",
    short_names=("sa",),
    returns_deleted=True,
    subresources=("token",),
)
EVENTS: Final = ApiResource("", "events", "Event", short_names=("ev",), unconditional_update=True, fields=_EVENT_FIELDS)
DEFINITIONS: Final = ApiResource(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    versions=_WITH_STATUS,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    generations=True,
)
ROLES: Final = ApiResource(_RBAC, "roles", "Role", unconditional_update=True)
CLUSTER_ROLES: Final = ApiResource(_RBAC, "clusterroles", "ClusterRole", namespaced=False, unconditional_update=True)
BINDINGS: Final = ApiResource(_RBAC, "rolebindings", "RoleBinding", unconditional_update=True)
CLUSTER_BINDINGS: Final = ApiResource(
    _RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False, unconditional_update=True
)

WEBHOOKS: Final = ApiResource(
    _ADMISSION,
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    categories=("api-extensions",),
    generations=True,
)
POLICIES: Final = ApiResource(
    _ADMISSION,
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
    versions=_WITH_STATUS,
    categories=("api-extensions",),
    generations=True,
)
POLICY_BINDINGS: Final = ApiResource(
    _ADMISSION,
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
    categories=("api-extensions",),
    generations=True,
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
    WEBHOOKS,
    POLICIES,
    POLICY_BINDINGS,
    ApiResource("", "configmaps", "ConfigMap", short_names=("cm",), unconditional_update=True),
    ApiResource("", "secrets", "Secret", unconditional_update=True, fields=("type",)),
    ApiResource(
        "",
        "nodes",
        "Node",
        namespaced=False,
        versions=_WITH_STATUS,
        short_names=("no",),
        unconditional_update=True,
        fields=("spec.unschedulable",),
    ),
    ApiResource(
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
    ApiResource(
        "apps",
        "deployments",
        "Deployment",
        versions=_WITH_STATUS,
        short_names=("deploy",),
        categories=("all",),
        unconditional_update=True,
        generations=True,
    ),
    ApiResource("coordination.k8s.io", "leases", "Lease"),
    ApiResource(
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


class ResourceRegistry:
    """The resources that are served now, by group and plural."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], ApiResource] = {}
        # Custom resources whose definition is being deleted: they can be read but not created.
        self.terminating: set[str] = set()
        self.reset()

    def reset(self) -> None:
        self._resources = {(one.group, one.plural): one for one in BUILT_IN}
        self.terminating.clear()

    def __iter__(self) -> Iterator[ApiResource]:
        return iter(self._resources.values())

    def add(self, resource: ApiResource) -> None:
        self._resources[resource.group, resource.plural] = resource

    def drop(self, group: str, plural: str) -> None:
        found = self._resources.pop((group, plural), None)
        if found is not None:
            self.terminating.discard(found.name)

    def named(self, group: str, plural: str) -> ApiResource | None:
        return self._resources.get((group, plural))

    def served(self, group: str, version: str, plural: str) -> ApiResource | None:
        found = self.named(group, plural)
        return found if found is not None and found.version(version) is not None else None

    def of_kind(self, group: str, kind: str) -> ApiResource | None:
        return next((one for one in self if one.group == group and one.kind == kind), None)
