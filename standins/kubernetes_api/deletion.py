"""Delete: preconditions, the deletion timestamp, and the removal of objects without finalizers.
`admission` asks webhooks before."""

from dataclasses import dataclass
from typing import Final

import msgspec

from standins.kubernetes_api import statuses
from standins.kubernetes_api.api_resources import DEFINITIONS, NAMESPACES, ApiResource
from standins.kubernetes_api.documents import Document, decode, now
from standins.kubernetes_api.state import ClusterState, condition
from standins.kubernetes_api.updates import can_be_removed

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})


class Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
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
    """`document` is the last state of the object; `gone` says that it was removed."""

    document: Document
    gone: bool


def parse_options(body: bytes, query: dict[str, str]) -> DeleteOptions:
    try:
        found = msgspec.json.decode(body, type=DeleteOptions) if body.strip() else DeleteOptions()
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"couldn't read the DeleteOptions: {error}") from None
    if "propagationPolicy" in query:
        found.propagation_policy = query["propagationPolicy"]
    if "dryRun" in query:
        found.dry_run = [query["dryRun"]]
    return found


def delete(state: ClusterState, resource: ApiResource, namespace: str, name: str, wanted: DeleteOptions) -> Deleted:
    """Raises StatusError."""
    document = decode(state.get(resource, namespace, name))
    meta = document["metadata"]
    refuse(resource, document, wanted)
    if "deletionTimestamp" in meta:
        # A second delete changes nothing, but removes an object without finalizers.
        if can_be_removed(resource, document):
            return _removed(state, resource, document, wanted)
        return Deleted(document, False)
    if resource == DEFINITIONS:
        meta["finalizers"] = [*meta.get("finalizers", ()), CLEANUP]
        conditions = document["status"]["conditions"]
        message = "CustomResource deletion is in progress"
        conditions.append(condition("Terminating", "True", "InstanceDeletionInProgress", message))
    kept = bool(meta.get("finalizers")) or resource == NAMESPACES
    if not kept:
        return _removed(state, resource, document, wanted)
    meta["deletionTimestamp"] = now()
    if resource == NAMESPACES:
        document["status"] = {**document.get("status", {}), "phase": "Terminating"}
    elif resource != DEFINITIONS:
        meta["deletionGracePeriodSeconds"] = 0
        if "generation" in meta:
            meta["generation"] += 1
    if can_be_removed(resource, document):
        return _removed(state, resource, document, wanted)
    if not wanted.dry_run:
        state.put(resource, document)
    return Deleted(document, False)


def refuse(resource: ApiResource, document: Document, wanted: DeleteOptions) -> None:
    """Raises StatusError if this object may not be deleted, whatever admission says."""
    meta = document["metadata"]
    _check(resource, meta, wanted.preconditions)
    if resource == NAMESPACES and meta["name"] in _UNDELETABLE:
        raise statuses.forbidden("", resource.plural, meta["name"], "this namespace may not be deleted")


def _removed(state: ClusterState, resource: ApiResource, document: Document, wanted: DeleteOptions) -> Deleted:
    if not wanted.dry_run:
        state.remove(resource, document)
    return Deleted(document, True)


def _check(resource: ApiResource, meta: Document, wanted: Preconditions | None) -> None:
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
