"""The few values that the real server fills in when an object is created, where clients look at them.
Everything else of a document stays as it was sent."""

import base64

from standins.api.documents import Document
from standins.api.kinds import Resource


def fill(resource: Resource, document: Document) -> None:
    meta = document["metadata"]
    match resource.name:
        case "namespaces":
            meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
            document["spec"] = {"finalizers": ["kubernetes"]}
            document["status"] = {"phase": "Active"}
        case "secrets":
            document.setdefault("type", "Opaque")
            plain = document.pop("stringData", None) or {}
            coded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
            if coded:
                document.setdefault("data", {}).update(coded)
        case "pods":
            document["status"] = {"phase": "Pending"}
        case "customresourcedefinitions.apiextensions.k8s.io":
            _definition(document)


def _definition(document: Document) -> None:
    spec = document["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    document["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}
