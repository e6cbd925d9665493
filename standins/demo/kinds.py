"""Kinds of objects as the demo defines them, and its own two: one waits for us with a finalizer, one is observed.
They are plain CustomResourceDefinitions; what an object of the two owns outside stands in its spec."""

from dataclasses import dataclass
from typing import Any, Final, Literal

GROUP: Final = "demo.knell.dev"
VERSION: Final = "v1"


@dataclass(frozen=True, slots=True)
class Kind:
    """`plural` is also the name of the source that watches it, if one does."""

    plural: str
    name: str
    mode: Literal["finalizer", "observe"] = "finalizer"
    group: str = GROUP
    version: str = VERSION
    collector: str = "simulated"
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def singular(self) -> str:
        return self.name.lower()

    def definition(self) -> dict[str, Any]:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": anything},
            "subresources": {"status": {}},
        }
        return {
            "metadata": {"name": self.resource},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {"plural": self.plural, "singular": self.singular, "kind": self.name},
                "versions": [version],
            },
        }

    def source(self) -> dict[str, Any]:
        """How settings declare it. Nearly everything goes at once here, which the guard is there to stop."""
        return {
            "resource": self.resource,
            "collector": self.collector,
            "mode": self.mode,
            "adopt_existing": True,
            "guard": {"enabled": False},
        }


CLUSTERS: Final = Kind("clusters", "Cluster", "finalizer")
MACHINES: Final = Kind("machines", "Machine", "observe")
KINDS: Final = (CLUSTERS, MACHINES)
