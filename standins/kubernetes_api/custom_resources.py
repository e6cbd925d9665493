"""CustomResourceDefinitions: validation, and the resource that a definition adds.
Their lifecycle (established, terminating, removed) is in `controllers`."""

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import DEFINITIONS, ApiResource, ApiVersion
from standins.kubernetes_api.documents import Document
from standins.kubernetes_api.statuses import Cause


def check(document: Document) -> None:
    """Raises StatusError (422)."""
    name = document["metadata"]["name"]
    errors = []
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise statuses.invalid(DEFINITIONS, name, [Cause("FieldValueRequired", "spec", "Required value")])
    names: Document = spec.get("names") or {}
    for field, value in (
        ("spec.group", spec.get("group")),
        ("spec.scope", spec.get("scope")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
    ):
        if not value:
            errors.append(Cause("FieldValueRequired", field, "Required value"))
    if not errors and name != f"{names['plural']}.{spec['group']}":
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        errors.append(Cause("FieldValueInvalid", "metadata.name", message))
    stored = [version for version in spec.get("versions") or () if version.get("storage")]
    if len(stored) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        errors.append(Cause("FieldValueInvalid", "spec.versions", message))
    if errors:
        raise statuses.invalid(DEFINITIONS, name, errors)


def record_storage_version(document: Document) -> None:
    """Adds the storage version to `storedVersions`, from which the server never removes one."""
    current = next(version["name"] for version in document["spec"]["versions"] if version.get("storage"))
    status = document.get("status", {})
    if current not in status.get("storedVersions", ()):
        document["status"] = {**status, "storedVersions": [*status.get("storedVersions", ()), current]}


def is_established(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def resource_of(document: Document) -> ApiResource:
    spec = document["spec"]
    names = spec["names"]
    return ApiResource(
        spec["group"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        versions=tuple(
            ApiVersion(
                version["name"],
                served=bool(version.get("served")),
                storage=bool(version.get("storage")),
                status="status" in (version.get("subresources") or {}),
            )
            for version in spec["versions"]
        ),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        custom=True,
    )
