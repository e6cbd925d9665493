"""Paths and bodies of the objects that the conformance suite creates; no I/O."""

from dataclasses import dataclass
from typing import Any, Final

GROUP: Final = "conformance.knell.dev"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES: Final = "/api/v1/namespaces"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object and where it lies."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join([*parts, *filter(None, (name, subresource))])

    def body(self, name: str = "", *, metadata: dict[str, Any] | None = None, **content: Any) -> dict[str, Any]:
        meta = {**({"name": name} if name else {}), **(metadata or {})}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": meta, **content}


MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Kind("", "v1", "secrets", "Secret")
ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS: Final = Kind("", "v1", "events", "Event")
NEW_EVENTS: Final = Kind("events.k8s.io", "v1", "events", "Event")
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
ROLES: Final = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS: Final = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


def definition(
    plural: str,
    *,
    scope: str = "Namespaced",
    versions: tuple[str, ...] = ("v1",),
    served: tuple[str, ...] | None = None,
    stored: str = "",
    status: bool = True,
) -> dict[str, Any]:
    kind = plural.removesuffix("s").capitalize()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": served is None or version in served,
                    "storage": version == (stored or versions[0]),
                    "schema": {"openAPIV3Schema": anything},
                    **({"subresources": {"status": {}}} if status else {}),
                }
                for version in versions
            ],
        },
    }
