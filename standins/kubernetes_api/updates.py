"""Update and patch: one read-modify-write under the rules of the real server, on the object or its status.
Removing the last finalizer of an object that is being deleted removes the object."""

from collections.abc import Callable
from dataclasses import dataclass

from standins.kubernetes_api import custom_resources, events, statuses, validation
from standins.kubernetes_api.api_resources import DEFINITIONS, EVENTS, NAMESPACES, ApiResource
from standins.kubernetes_api.documents import Document, decode, encode, typed_metadata
from standins.kubernetes_api.state import ClusterState
from standins.kubernetes_api.statuses import Cause


@dataclass(frozen=True, slots=True)
class Update:
    """An update or patch: `make` gets the object in the requested version and returns the new one."""

    resource: ApiResource
    version: str
    namespace: str
    name: str
    subresource: str
    make: Callable[[Document], Document]
    # PUT replaces the whole object; a patch changes the existing one.
    replaces: bool
    dry: bool = False


def update(state: ClusterState, wanted: Update) -> bytes:
    """Returns the object after the change. Raises StatusError."""
    resource = wanted.resource
    raw = state.get(resource, wanted.namespace, wanted.name)
    old = decode(raw)
    new = wanted.make(_shown(wanted, decode(raw)))
    validation.identity(resource, wanted.version, new)
    _require_same_name(wanted, new)
    meta = typed_metadata(new)
    _require_current(wanted, old["metadata"], meta)
    validation.unchanged(resource, old["metadata"], meta)
    validation.finalizers(resource, meta)
    validation.no_new_finalizers(resource, old["metadata"], meta)
    if resource.stored_in == EVENTS.stored_in and resource != EVENTS:
        new = events.to_core(new)
    new.pop("apiVersion", None)
    new.pop("kind", None)
    new = _restricted(wanted, old, new)
    if resource == DEFINITIONS:
        custom_resources.check(new)
        custom_resources.record_storage_version(new)
    if _raises_generation(wanted, old, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if new == old:
        return raw
    if can_be_removed(resource, new):
        # The removal of the last finalizer is not stored: watches get a DELETED event with the object before it.
        if not wanted.dry:
            state.remove(resource, old)
        return encode(new)
    return encode(new) if wanted.dry else state.put(resource, new)


def can_be_removed(resource: ApiResource, document: Document) -> bool:
    """Whether an object is being deleted and has no finalizers left."""
    meta = document["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return resource != NAMESPACES or not (document.get("spec") or {}).get("finalizers")


def _shown(wanted: Update, document: Document) -> Document:
    resource = wanted.resource
    if resource.stored_in == EVENTS.stored_in and resource != EVENTS:
        document = events.from_core(document)
    return {"kind": resource.kind, "apiVersion": resource.api_version(wanted.version), **document}


def _require_same_name(wanted: Update, new: Document) -> None:
    meta = new.get("metadata")
    if not isinstance(meta, dict):
        meta = new["metadata"] = {}
    name = meta.get("name") or (wanted.name if not wanted.replaces else "")
    if name and name != wanted.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({wanted.name})"
        )
    if not name:
        raise statuses.bad_request(
            f"the name of the object ({wanted.name} based on URL) was undeterminable: name must be provided"
        )
    namespace = meta.get("namespace") or wanted.namespace
    if wanted.resource.namespaced and namespace != wanted.namespace:
        raise statuses.bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the URL ({wanted.namespace})"
        )


def _require_current(wanted: Update, old: Document, meta: Document) -> None:
    resource = wanted.resource
    if wanted.replaces and meta.get("uid", old["uid"]) != old["uid"]:
        raise statuses.conflict(
            resource,
            wanted.name,
            f"StorageError: invalid object, Code: 4, Key: {_stored_at(wanted)}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {meta['uid']}, "
            f"UID in object meta: {old['uid']}",
        )
    version = meta.get("resourceVersion", "")
    if version in ("", "0"):
        if not resource.unconditional_update:
            message = "Invalid value: 0: must be specified for an update"
            causes = [Cause("FieldValueInvalid", "metadata.resourceVersion", message)]
            raise statuses.invalid_kind(resource.plural, resource.group, wanted.name, causes)
    elif not version.isdecimal():
        raise statuses.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    elif version != old["resourceVersion"]:
        raise statuses.conflict(resource, wanted.name)
    meta["resourceVersion"] = old["resourceVersion"]


def _stored_at(wanted: Update) -> str:
    parts = ("/registry", wanted.resource.group, wanted.resource.plural, wanted.namespace, wanted.name)
    return "/".join(filter(None, parts))


def _restricted(wanted: Update, old: Document, new: Document) -> Document:
    """Each endpoint changes only its own part: the status, the finalizers of a Namespace, or everything else."""
    resource = wanted.resource
    served = resource.version(wanted.version)
    match wanted.subresource:
        case "status":
            result = dict(old)
            if not resource.custom:
                result["metadata"] = new["metadata"]
            return _with(result, "status", new)
        case "finalize":
            result = {**old, "metadata": new["metadata"]}
            return _with(result, "spec", new)
    if served is not None and served.status:
        new = _with(new, "status", old)
    if resource == NAMESPACES:
        new = _with(new, "spec", old)
    return new


def _with(document: Document, part: str, source: Document) -> Document:
    kept = {name: value for name, value in document.items() if name != part}
    if part in source:
        kept[part] = source[part]
    return kept


def _raises_generation(wanted: Update, old: Document, new: Document) -> bool:
    if not (wanted.resource.custom or wanted.resource.generations) or wanted.subresource:
        return False
    served = wanted.resource.version(wanted.version)
    left_out = {"metadata", "status"} if served is not None and served.status else {"metadata"}
    return {name: value for name, value in old.items() if name not in left_out} != {
        name: value for name, value in new.items() if name not in left_out
    }
