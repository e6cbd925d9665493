"""Ownership of a resource, by its tags and VPC as they were just read. Pure: the functions return why a resource is not
the cluster's, or None or an empty string if it is."""

from datetime import UTC, datetime, timedelta
from typing import Final

from service.sources.capa import (
    ADOPTED,
    EKS_CLUSTER_NAME,
    LBC_CLUSTER,
    OWNED,
    SERVICE_NAME,
    AwsSettings,
    capi_ownership_tag,
    ownership_tag,
)
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.providers.aws.model import AwsResource

MAX_OLDER: Final = timedelta(hours=1)
"""How much older than its object a resource may be: clocks differ, and objects are recreated."""

_CLUSTER_API_TAG: Final = capi_ownership_tag("")


def owner_tag(claim: CapaClaim) -> tuple[str, str]:
    """The tag, key and value, that identifies the owner's resources."""
    return (LBC_CLUSTER, claim.name) if claim.by == "lbc" else (ownership_tag(claim.name), OWNED)


def age_objection(resource: AwsResource, claim: CapaClaim, settings: AwsSettings) -> str:
    """Why it may belong to an earlier object of the same name; empty if nothing indicates it."""
    if settings.accept_older or (settings.allow_adopted and claim.adopted) or not claim.made or resource.made is None:
        return ""
    made = datetime.fromtimestamp(claim.made / 1000, UTC)
    if made - resource.made <= MAX_OLDER:
        return ""
    adopt = f"annotation {ADOPTED}=true on the object, or " if settings.allow_adopted else ""
    return (
        f"{resource.id} was made {resource.made:%Y-%m-%dT%H:%M:%SZ}, long before the object "
        f"({made:%Y-%m-%dT%H:%M:%SZ}): it may be what an earlier cluster of that name left; if it is "
        f"this one's, as after `clusterctl move`, {adopt}the setting aws.accept_older says so; "
        f"`knell jobs abandon` releases the object without it"
    )


def ownership_objection(resource: AwsResource, claim: CapaClaim) -> str | None:
    """Why it is not the cluster's; None if it is. Tags that keep it are checked separately."""
    row = CAPA_KINDS.get(resource.kind)
    if row is None:
        return f"{resource.id} is of kind {resource.kind!r}, which does not go with a cluster"
    reason = tag_objection(resource, claim)
    if reason is None and row.needs_service_tag and claim.by == "ccm" and not resource.tags.get(SERVICE_NAME):
        return f"{resource.id} has no tag {SERVICE_NAME}: it was not made for a Service of cluster {claim.name}"
    return reason


def tag_objection(resource: AwsResource, claim: CapaClaim) -> str | None:
    """Why it is not the cluster's by its tags and VPC, whatever its kind requires."""
    if resource.id in claim.spared:
        return (
            f"{resource.id} is not to go: the spec of cluster {claim.name} names it as the user's, or it was abandoned"
        )
    key, value = owner_tag(claim)
    if resource.tags.get(key) != value:
        return f"{resource.id} is not tagged {key}={value}"
    of_cluster_api = next((tag for tag in resource.tags if tag.startswith(_CLUSTER_API_TAG)), None)
    if of_cluster_api is not None:
        return f"{resource.id} is tagged {of_cluster_api}: it is Cluster API's own and goes with the cluster"
    if EKS_CLUSTER_NAME in resource.tags:
        return f"{resource.id} is tagged {EKS_CLUSTER_NAME}: it is EKS's own and goes with the cluster"
    if resource.vpc and not claim.vpc:
        return f"{resource.id} is in VPC {resource.vpc}, and which VPC cluster {claim.name} has is not known"
    if resource.vpc and resource.vpc != claim.vpc:
        return f"{resource.id} is in VPC {resource.vpc}, and cluster {claim.name} in {claim.vpc}"
    return None


def removed_by(resource: AwsResource, claim: CapaClaim) -> str:
    """The controller that deletes it with the owner's cluster; empty if none is known."""
    tags, name = resource.tags, claim.name
    if resource.id in claim.spared:
        return ""
    if tags.get(EKS_CLUSTER_NAME) == name:
        return "EKS"
    # On EKS clusters this tag has the Cluster's name, which may differ from the one in the other tags.
    of_cluster_api = {tag for tag, value in tags.items() if tag.startswith(_CLUSTER_API_TAG) and value == OWNED}
    same = capi_ownership_tag(name) in of_cluster_api or tags.get(ownership_tag(name)) == OWNED
    return "Cluster API" if of_cluster_api and same else ""
