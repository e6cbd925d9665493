"""Ownership of a resource, by its tags and VPC as they were just read. Pure: the functions return why a resource is not
the owner's, or None or an empty string if it is."""

from datetime import UTC, datetime, timedelta
from typing import Final

from service.contract.aws import (
    ADOPTED,
    EKS_CLUSTER_NAME,
    LBC_CLUSTER,
    OWNED,
    SERVICE_NAME,
    capi_ownership_tag,
    ownership_tag,
)
from service.contract.kept import PREVENT_DELETE_TAG, RETAINED_TAG, is_protection
from service.settings.aws import AwsSettings
from workers.handlers.aws.model import AwsKind, AwsResource, CapaCluster

MAX_OLDER: Final = timedelta(hours=1)
"""How much older than its object a resource may be: clocks differ, and objects are recreated."""

_CLUSTER_API_TAG: Final = capi_ownership_tag("")


def owner_tag(owner: CapaCluster) -> tuple[str, str]:
    """The tag, key and value, that identifies the owner's resources."""
    return (LBC_CLUSTER, owner.name) if owner.by == "lbc" else (ownership_tag(owner.name), OWNED)


def protection_reason(resource: AwsResource) -> str:
    """Why a protection tag keeps it; empty if none does."""
    value = resource.tags.get(PREVENT_DELETE_TAG, "")
    if not is_protection(value):
        return ""
    return f"the tag {PREVENT_DELETE_TAG} of {resource.id} is {value!r}: it stays until that is taken off"


def retention_reason(resource: AwsResource) -> str:
    """The object it was kept with, by its tag; empty if there is none."""
    value = resource.tags.get(RETAINED_TAG, "")
    return f"the tag {RETAINED_TAG} of {resource.id} says that it was kept with {value}" if value else ""


def age_objection(resource: AwsResource, owner: CapaCluster, settings: AwsSettings) -> str:
    """Why it may belong to an earlier object of the same name; empty if nothing indicates it."""
    if settings.accept_older or (settings.allow_adopted and owner.adopted) or not owner.made or resource.made is None:
        return ""
    made = datetime.fromtimestamp(owner.made / 1000, UTC)
    if made - resource.made <= MAX_OLDER:
        return ""
    adopt = f"annotation {ADOPTED}=true on the object, or " if settings.allow_adopted else ""
    return (
        f"{resource.id} was made {resource.made:%Y-%m-%dT%H:%M:%SZ}, long before the object "
        f"({made:%Y-%m-%dT%H:%M:%SZ}): it may be what an earlier cluster of that name left; if it is "
        f"this one's, as after `clusterctl move`, {adopt}the setting aws.accept_older says so; "
        f"`knell jobs abandon` releases the object without it"
    )


def ownership_objection(resource: AwsResource, owner: CapaCluster, kind: AwsKind) -> str | None:
    """Why it is not the owner's; None if it is. Tags that keep it are checked separately."""
    reason = _not_tagged(resource, owner)
    if reason is None and kind.needs_service_tag and owner.by == "ccm" and not resource.tags.get(SERVICE_NAME):
        return f"{resource.id} has no tag {SERVICE_NAME}: it was not made for a Service of cluster {owner.name}"
    return reason


def change_objection(resource: AwsResource, owner: CapaCluster) -> str | None:
    """Why neither it nor its rules may be changed, whatever its kind requires; a resource kept by a tag is never
    changed."""
    return protection_reason(resource) or retention_reason(resource) or _not_tagged(resource, owner)


def _not_tagged(resource: AwsResource, owner: CapaCluster) -> str | None:
    if resource.id in owner.spared:
        return (
            f"{resource.id} is not to go: the spec of cluster {owner.name} names it as the user's, or it was abandoned"
        )
    key, value = owner_tag(owner)
    if resource.tags.get(key) != value:
        return f"{resource.id} is not tagged {key}={value}"
    of_cluster_api = next((tag for tag in resource.tags if tag.startswith(_CLUSTER_API_TAG)), None)
    if of_cluster_api is not None:
        return f"{resource.id} is tagged {of_cluster_api}: it is Cluster API's own and goes with the cluster"
    if EKS_CLUSTER_NAME in resource.tags:
        return f"{resource.id} is tagged {EKS_CLUSTER_NAME}: it is EKS's own and goes with the cluster"
    if resource.vpc and not owner.vpc:
        return f"{resource.id} is in VPC {resource.vpc}, and which VPC cluster {owner.name} has is not known"
    if resource.vpc and resource.vpc != owner.vpc:
        return f"{resource.id} is in VPC {resource.vpc}, and cluster {owner.name} in {owner.vpc}"
    return None


def removed_by(resource: AwsResource, owner: CapaCluster) -> str:
    """The controller that deletes it with the owner's cluster; empty if none is known."""
    tags, name = resource.tags, owner.name
    if resource.id in owner.spared:
        return ""
    if tags.get(EKS_CLUSTER_NAME) == name:
        return "EKS"
    # On EKS clusters this tag has the Cluster's name, which may differ from the one in the other tags.
    of_cluster_api = {tag for tag, value in tags.items() if tag.startswith(_CLUSTER_API_TAG) and value == OWNED}
    same = capi_ownership_tag(name) in of_cluster_api or tags.get(ownership_tag(name)) == OWNED
    return "Cluster API" if of_cluster_api and same else ""
