"""Delete: preconditions, the mark of an object that is going, and its removal once no finalizer keeps it.
The namespace and definition controllers and the garbage collector delete through here, too."""

from dataclasses import dataclass
from typing import Final

import msgspec

from standins.api import statuses
from standins.api.changing import is_over
from standins.api.documents import Document, decode, now
from standins.api.kinds import DEFINITIONS, NAMESPACES, Resource
from standins.api.world import World, condition

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


class Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class Options(msgspec.Struct, rename="camel"):
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None

    @property
    def orphans(self) -> bool:
        return self.propagation_policy == "Orphan" or self.orphan_dependents is True


@dataclass(frozen=True, slots=True)
class Deleted:
    """`document` is the object as it last stood; `gone` says that nothing kept it."""

    document: Document
    gone: bool


def options(body: bytes, query: dict[str, str]) -> Options:
    try:
        found = msgspec.json.decode(body, type=Options) if body.strip() else Options()
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the DeleteOptions: {error}") from None
    if "propagationPolicy" in query:
        found.propagation_policy = query["propagationPolicy"]
    if "dryRun" in query:
        found.dry_run = [query["dryRun"]]
    return found


def delete(world: World, resource: Resource, namespace: str, name: str, wanted: Options) -> Deleted:
    """Raises Refusal."""
    document = decode(world.get(resource, namespace, name))
    meta = document["metadata"]
    _check(resource, meta, wanted.preconditions)
    if resource == NAMESPACES and name in _IMMORTAL:
        raise statuses.forbidden("", resource.plural, name, "this namespace may not be deleted")
    if "deletionTimestamp" in meta:
        # Asking again changes nothing, but finds an object that nothing keeps.
        return _removed(world, resource, document, wanted) if is_over(resource, document) else Deleted(document, False)
    if resource == DEFINITIONS:
        meta["finalizers"] = [*meta.get("finalizers", ()), CLEANUP]
        conditions = document["status"]["conditions"]
        message = "CustomResource deletion is in progress"
        conditions.append(condition("Terminating", "True", "InstanceDeletionInProgress", message))
    kept = bool(meta.get("finalizers")) or resource == NAMESPACES
    if not kept:
        return _removed(world, resource, document, wanted)
    meta["deletionTimestamp"] = now()
    if resource == NAMESPACES:
        document["status"] = {**document.get("status", {}), "phase": "Terminating"}
    elif resource != DEFINITIONS:
        meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            meta["generation"] += 1
    if is_over(resource, document):
        return _removed(world, resource, document, wanted)
    if not wanted.dry_run:
        world.put(resource, document)
    return Deleted(document, False)


def _removed(world: World, resource: Resource, document: Document, wanted: Options) -> Deleted:
    if not wanted.dry_run:
        world.remove(resource, document)
    return Deleted(document, True)


def _check(resource: Resource, meta: Document, wanted: Preconditions | None) -> None:
    if wanted is None:
        return
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        raise statuses.precondition(
            resource,
            meta["name"],
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated",
        )
    if wanted.resource_version is not None and wanted.resource_version != meta["resourceVersion"]:
        raise statuses.precondition(
            resource,
            meta["name"],
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified",
        )
