"""Whose a resource is, judged by its tags and its VPC, as they were read just now.
Pure: a resource and an owner go in; out comes why it is not the owner's, or nothing where it is."""

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
from workers.handlers.aws.model import Found, Kind, Owner

OLDER: Final = timedelta(hours=1)
"""So much older than its object a resource may be: clocks differ, and objects are made anew."""

_OF_CLUSTER_API: Final = capi_ownership_tag("")


def mark_of(owner: Owner) -> tuple[str, str]:
    """The tag, key and value, by which the owner's resources are recognised."""
    return (LBC_CLUSTER, owner.name) if owner.by == "lbc" else (ownership_tag(owner.name), OWNED)


def protected(found: Found) -> str:
    """Why a person's tag keeps it; empty where none does."""
    value = found.tags.get(PREVENT_DELETE_TAG, "")
    if not is_protection(value):
        return ""
    return f"the tag {PREVENT_DELETE_TAG} of {found.id} is {value!r}: it stays until that is taken off"


def retained(found: Found) -> str:
    """With which object it was kept; empty where it was with none."""
    value = found.tags.get(RETAINED_TAG, "")
    return f"the tag {RETAINED_TAG} of {found.id} says that it was kept with {value}" if value else ""


def older(found: Found, owner: Owner, settings: AwsSettings) -> str:
    """Why it may be that of an earlier object of the same name; empty where nothing says so."""
    if settings.accept_older or (settings.allow_adopted and owner.adopted) or not owner.made or found.made is None:
        return ""
    made = datetime.fromtimestamp(owner.made / 1000, UTC)
    if made - found.made <= OLDER:
        return ""
    adopt = f"annotation {ADOPTED}=true on the object, or " if settings.allow_adopted else ""
    return (
        f"{found.id} was made {found.made:%Y-%m-%dT%H:%M:%SZ}, long before the object ({made:%Y-%m-%dT%H:%M:%SZ}): it "
        f"may be what an earlier cluster of that name left; if it is this one's, as after `clusterctl move`, "
        f"{adopt}the setting aws.accept_older says so; `knell jobs abandon` lets the object go without it"
    )


def owned(found: Found, owner: Owner, kind: Kind) -> str | None:
    """Why this is not the owner's, in one sentence; None where it is. Whether a tag keeps it is asked apart."""
    reason = _not_tagged(found, owner)
    if reason is None and kind.of_service and owner.by == "ccm" and not found.tags.get(SERVICE_NAME):
        return f"{found.id} has no tag {SERVICE_NAME}: it was not made for a Service of cluster {owner.name}"
    return reason


def not_marked(found: Found, owner: Owner) -> str | None:
    """As `owned`, whatever else its kind needs; what is kept by a tag of its own is nobody's to change."""
    return protected(found) or retained(found) or _not_tagged(found, owner)


def _not_tagged(found: Found, owner: Owner) -> str | None:
    if found.id in owner.spared:
        return f"{found.id} is not to go: the spec of cluster {owner.name} names it as the user's, or it was abandoned"
    key, value = mark_of(owner)
    if found.tags.get(key) != value:
        return f"{found.id} is not tagged {key}={value}"
    of_cluster_api = next((tag for tag in found.tags if tag.startswith(_OF_CLUSTER_API)), None)
    if of_cluster_api is not None:
        return f"{found.id} is tagged {of_cluster_api}: it is Cluster API's own and goes with the cluster"
    if EKS_CLUSTER_NAME in found.tags:
        return f"{found.id} is tagged {EKS_CLUSTER_NAME}: it is EKS's own and goes with the cluster"
    if found.vpc and not owner.vpc:
        return f"{found.id} is in VPC {found.vpc}, and which VPC cluster {owner.name} has is not known"
    if found.vpc and found.vpc != owner.vpc:
        return f"{found.id} is in VPC {found.vpc}, and cluster {owner.name} in {owner.vpc}"
    return None


def goes_along(found: Found, owner: Owner) -> str:
    """Who else removes it with the owner's cluster, and its rules with it; empty where nobody is known to."""
    tags, name = found.tags, owner.name
    if found.id in owner.spared:
        return ""
    if tags.get(EKS_CLUSTER_NAME) == name:
        return "EKS"
    # Of an EKS cluster this tag has the Cluster's name, which need not be the one in the others.
    of_cluster_api = {tag for tag, value in tags.items() if tag.startswith(_OF_CLUSTER_API) and value == OWNED}
    same = capi_ownership_tag(name) in of_cluster_api or tags.get(ownership_tag(name)) == OWNED
    return "Cluster API" if of_cluster_api and same else ""
