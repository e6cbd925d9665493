"""Create: names, system fields and the refusals of a namespace that is absent or going.
Seeding many objects without HTTP goes through here as well, so seeded objects are like all others."""

import secrets
import uuid
from typing import Final

from standins.api import definitions, events, statuses, validating
from standins.api.defaulting import fill
from standins.api.documents import Document, encode, now, typed_metadata
from standins.api.kinds import DEFINITIONS, EVENTS, Resource
from standins.api.statuses import Cause
from standins.api.world import World, key_of

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE: Final = 58


def create(
    world: World, resource: Resource, version: str, namespace: str, document: Document, *, dry: bool = False
) -> bytes:
    """Returns the object as stored. Raises Refusal."""
    validating.identity(resource, version, document)
    meta = typed_metadata(document)
    if resource.name in world.registry.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise statuses.forbidden(resource.group, resource.plural, _called(meta), why)
    _place(resource, namespace, meta)
    if "resourceVersion" in meta:
        raise statuses.internal("resourceVersion should not be set on objects to be created")
    if resource.namespaced:
        _refuse_without_namespace(world, resource, meta)
    if not meta.get("name") and meta.get("generateName"):
        suffix = "".join(secrets.choice(_LETTERS) for _ in range(5))
        meta["name"] = meta["generateName"][:_LONGEST_BASE] + suffix
    validating.name(resource, meta)
    validating.finalizers(resource, meta)
    if resource.stored_in == EVENTS.stored_in:
        document = events.accepted(resource, document)
    if resource == DEFINITIONS:
        definitions.check(document)
    stored = _stored(resource, version, document)
    if key_of(resource, stored) in world.store.table(resource.stored_in).objects:
        raise statuses.already_exists(resource, meta["name"])
    return encode(stored) if dry else world.put(resource, stored)


def _place(resource: Resource, namespace: str, meta: Document) -> None:
    if not resource.namespaced:
        meta.pop("namespace", None)
        return
    if meta.setdefault("namespace", namespace) != namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _refuse_without_namespace(world: World, resource: Resource, meta: Document) -> None:
    where = meta["namespace"]
    found = world.namespace(where)
    if found is None:
        about = {"name": where, "kind": "namespaces"}
        raise statuses.Refusal(404, "NotFound", f'namespaces "{where}" not found', about)
    if "deletionTimestamp" in found["metadata"]:
        raise statuses.forbidden(
            resource.group,
            resource.plural,
            _called(meta),
            f"unable to create new content in namespace {where} because it is being terminated",
            [Cause("NamespaceTerminating", "metadata.namespace", f"namespace {where} is being terminated")],
        )


def _called(meta: Document) -> str:
    """The name, as far as it is known before one is made."""
    return str(meta.get("name") or meta.get("generateName", ""))


def _stored(resource: Resource, version: str, document: Document) -> Document:
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
