"""CustomResourceDefinitions as data: what one must say, and the resource that it adds.
Their life (established, going, gone) is the controllers' business."""

from standins.api import statuses
from standins.api.documents import Document
from standins.api.kinds import DEFINITIONS, Resource, Version
from standins.api.statuses import Cause


def check(document: Document) -> None:
    """Raises Refusal (422)."""
    name = document["metadata"]["name"]
    wrong = []
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
            wrong.append(Cause("FieldValueRequired", field, "Required value"))
    if not wrong and name != f"{names['plural']}.{spec['group']}":
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        wrong.append(Cause("FieldValueInvalid", "metadata.name", message))
    stored = [version for version in spec.get("versions") or () if version.get("storage")]
    if len(stored) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        wrong.append(Cause("FieldValueInvalid", "spec.versions", message))
    if wrong:
        raise statuses.invalid(DEFINITIONS, name, wrong)


def remember_stored(document: Document) -> None:
    """A version that was ever the storage version stays listed until somebody cleans up."""
    current = next(version["name"] for version in document["spec"]["versions"] if version.get("storage"))
    status = document.get("status", {})
    if current not in status.get("storedVersions", ()):
        document["status"] = {**status, "storedVersions": [*status.get("storedVersions", ()), current]}


def is_established(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def resource_of(document: Document) -> Resource:
    spec = document["spec"]
    names = spec["names"]
    return Resource(
        spec["group"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        versions=tuple(
            Version(
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
