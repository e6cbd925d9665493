"""Create: names, system fields, defaults, and the errors for a missing or terminating Namespace.
`EmbeddedApi.seed` creates its objects through here, too."""

import base64
import secrets
import uuid
from typing import Final

from standins.kubernetes_api import custom_resources, events, statuses, validation
from standins.kubernetes_api.api_resources import DEFINITIONS, EVENTS, ApiResource
from standins.kubernetes_api.documents import Document, encode, now, typed_metadata
from standins.kubernetes_api.state import ClusterState, key_of
from standins.kubernetes_api.statuses import Cause

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE: Final = 58


def create(
    state: ClusterState, resource: ApiResource, version: str, namespace: str, document: Document, *, dry: bool = False
) -> bytes:
    """Returns the object as stored. Raises StatusError."""
    validation.identity(resource, version, document)
    meta = typed_metadata(document)
    if resource.name in state.registry.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise statuses.forbidden(resource.group, resource.plural, _name_so_far(meta), why)
    _place(resource, namespace, meta)
    if "resourceVersion" in meta:
        raise statuses.internal("resourceVersion should not be set on objects to be created")
    if resource.namespaced:
        _refuse_without_namespace(state, resource, meta)
    if not meta.get("name") and meta.get("generateName"):
        suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
        meta["name"] = meta["generateName"][:_LONGEST_BASE] + suffix
    validation.name(resource, meta)
    validation.finalizers(resource, meta)
    if resource.stored_in == EVENTS.stored_in:
        document = events.accepted(resource, document)
    if resource == DEFINITIONS:
        custom_resources.check(document)
    stored = _stored(resource, version, document)
    if key_of(resource, stored) in state.store.table(resource.stored_in).objects:
        raise statuses.already_exists(resource, meta["name"])
    return encode(stored) if dry else state.put(resource, stored)


def _place(resource: ApiResource, namespace: str, meta: Document) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    if meta.setdefault("namespace", namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _refuse_without_namespace(state: ClusterState, resource: ApiResource, meta: Document) -> None:
    where = meta["namespace"]
    found = state.namespace(where)
    if found is None:
        about = {"name": where, "kind": "namespaces"}
        raise statuses.StatusError(404, "NotFound", f'namespaces "{where}" not found', about)
    if "deletionTimestamp" in found["metadata"]:
        raise statuses.forbidden(
            resource.group,
            resource.plural,
            _name_so_far(meta),
            f"unable to create new content in namespace {where} because it is being terminated",
            [Cause("NamespaceTerminating", "metadata.namespace", f"namespace {where} is being terminated")],
        )


def _name_so_far(meta: Document) -> str:
    """The name, or the prefix from which one will be generated."""
    return str(meta.get("name") or meta.get("generateName", ""))


def _stored(resource: ApiResource, version: str, document: Document) -> Document:
    given = document["metadata"]
    meta = {"name": given["name"]}
    if given.get("generateName"):
        meta["generateName"] = given["generateName"]
    if resource.namespaced:
        meta["namespace"] = given["namespace"]
    meta["uid"] = str(uuid.uuid4())
    meta["resourceVersion"] = ""
    if resource.custom or resource.generations:
        meta["generation"] = 1
    meta["creationTimestamp"] = now()
    meta |= {
        field: given[field] for field in ("labels", "annotations", "ownerReferences", "finalizers") if field in given
    }
    stored = {"metadata": meta}
    stored |= {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    served = resource.version(version)
    if resource.custom and served is not None and served.status:
        stored.pop("status", None)
    fill(resource, stored)
    return stored


def fill(resource: ApiResource, document: Document) -> None:
    """Sets the defaults of the real server that clients read."""
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
        case "validatingwebhookconfigurations.admissionregistration.k8s.io":
            for webhook in document.get("webhooks") or ():
                _admission(webhook, webhook.get("rules"))
                webhook.setdefault("timeoutSeconds", 10)
                if service := webhook.get("clientConfig", {}).get("service"):
                    service.setdefault("port", 443)
        case "validatingadmissionpolicies.admissionregistration.k8s.io":
            spec = document["spec"]
            spec.setdefault("failurePolicy", "Fail")
            constraints = spec.setdefault("matchConstraints", {})
            _admission(constraints, constraints.get("resourceRules"))
            del constraints["failurePolicy"]
            document.setdefault("status", {})


def _admission(matching: Document, rules: list[Document] | None) -> None:
    """Defaults of what says which requests are judged."""
    for field, value in (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent")):
        matching.setdefault(field, value)
    for field in ("namespaceSelector", "objectSelector"):
        matching.setdefault(field, {})
    for rule in rules or ():
        rule.setdefault("scope", "*")


def _definition(document: Document) -> None:
    spec = document["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    document["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}
