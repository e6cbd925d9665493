"""Update and patch: one read-change-write under the rules of the real server, on the object or on its status.
Taking the last finalizer off an object that is going removes it."""

from collections.abc import Callable
from dataclasses import dataclass

from standins.api import definitions, events, statuses, validating
from standins.api.documents import Document, decode, encode, typed_metadata
from standins.api.kinds import DEFINITIONS, EVENTS, NAMESPACES, Resource
from standins.api.statuses import Cause
from standins.api.world import World


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed, and how: `make` gets the object as the version shows it and returns the new one."""

    resource: Resource
    version: str
    namespace: str
    name: str
    subresource: str
    make: Callable[[Document], Document]
    # A whole object that is put in place of another; a patch starts from what is there.
    replaces: bool
    dry: bool = False


def change(world: World, wanted: Change) -> bytes:
    """Returns the object after the change. Raises Refusal."""
    resource = wanted.resource
    raw = world.get(resource, wanted.namespace, wanted.name)
    old = decode(raw)
    new = wanted.make(_shown(wanted, decode(raw)))
    validating.identity(resource, wanted.version, new)
    _same_place(wanted, new)
    meta = typed_metadata(new)
    _fresh(wanted, old["metadata"], meta)
    validating.unchanged(resource, old["metadata"], meta)
    validating.finalizers(resource, meta)
    validating.no_new_finalizers(resource, old["metadata"], meta)
    if resource.stored_in == EVENTS.stored_in and resource != EVENTS:
        new = events.to_core(new)
    new.pop("apiVersion", None)
    new.pop("kind", None)
    new = _limited(wanted, old, new)
    if resource == DEFINITIONS:
        definitions.check(new)
        definitions.remember_stored(new)
    if _raises_generation(wanted, old, new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if new == old:
        return raw
    if is_over(resource, new):
        # The last finalizer is never written as gone: watchers see the removal, with the object as it last stood.
        if not wanted.dry:
            world.remove(resource, old)
        return encode(new)
    return encode(new) if wanted.dry else world.put(resource, new)


def is_over(resource: Resource, document: Document) -> bool:
    """Whether nothing keeps a deleted object any more."""
    meta = document["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return resource != NAMESPACES or not (document.get("spec") or {}).get("finalizers")


def _shown(wanted: Change, document: Document) -> Document:
    resource = wanted.resource
    if resource.stored_in == EVENTS.stored_in and resource != EVENTS:
        document = events.from_core(document)
    return {"kind": resource.kind, "apiVersion": resource.api_version(wanted.version), **document}


def _same_place(wanted: Change, new: Document) -> None:
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


def _fresh(wanted: Change, old: Document, meta: Document) -> None:
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


def _stored_at(wanted: Change) -> str:
    parts = ("/registry", wanted.resource.group, wanted.resource.plural, wanted.namespace, wanted.name)
    return "/".join(filter(None, parts))


def _limited(wanted: Change, old: Document, new: Document) -> Document:
    """Each way in changes only its own part: the status, a Namespace's finalizers, or everything else."""
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


def _raises_generation(wanted: Change, old: Document, new: Document) -> bool:
    if not (wanted.resource.custom or wanted.resource.generations) or wanted.subresource:
        return False
    served = wanted.resource.version(wanted.version)
    left_out = {"metadata", "status"} if served is not None and served.status else {"metadata"}
    return {name: value for name, value in old.items() if name not in left_out} != {
        name: value for name, value in new.items() if name not in left_out
    }
