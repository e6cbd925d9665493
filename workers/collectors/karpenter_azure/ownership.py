"""Ownership check of an Azure resource by its name and tags, as just read. Pure.
A resource of another owner is left alone; one whose owner is unclear is held for an operator."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from service.contract.kept import is_protection
from service.sources.azure import KEEP_TAG, RETAINED
from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG, NODEPOOL_TAG
from workers.providers.azure.model import AzureResource

OLDER: Final = timedelta(hours=1)
"""How much older than its NodeClaim a resource may be, because clocks differ."""


class Ownership(NamedTuple):
    """`left` is not ours, or was kept before; `kept` is protected by a tag; `untagged` may be ours or not."""

    kind: Literal["ours", "left", "kept", "untagged"]
    reason: str = ""


def ownership_of(tags: Mapping[str, str], cluster: str, wanted: Mapping[str, str]) -> Ownership:
    """Names of tags are compared without case, the cluster's name exactly as Karpenter wrote it."""
    known = {name.lower(): value for name, value in tags.items()}
    if AKS_MACHINE_TAG in known:
        return Ownership("left", "it belongs to a machine of AKS, which AKS removes")
    if is_protection(known.get(KEEP_TAG, "")):
        return Ownership("kept", f"its tag {KEEP_TAG} is {known[KEEP_TAG]!r}: it stays until that is taken off")
    if known.get(RETAINED):
        return Ownership("left", f"its tag {RETAINED} says that it was kept with {known[RETAINED]}")
    found = known.get(CLUSTER_TAG, "")
    if found and found != cluster:
        return Ownership("left", f"its tag {CLUSTER_TAG} names cluster {found!r}, not {cluster!r}")
    missing = [name for name in (CLUSTER_TAG, NODEPOOL_TAG) if not known.get(name)]
    if missing:
        return Ownership("untagged", f"it has no tag {' and no tag '.join(missing)}")
    for name, value in wanted.items():
        if known.get(name.lower()) != value:
            return Ownership("untagged", f"its tag {name} is {known.get(name.lower())!r}, not {value!r}")
    return Ownership("ours")


def older(found: AzureResource, claim_made: int) -> str:
    """Why it may belong to an earlier NodeClaim of the same name; empty if nothing indicates that. `claim_made` is when
    its NodeClaim was created, in milliseconds; 0 if unknown."""
    if not claim_made or found.made is None:
        return ""
    made = datetime.fromtimestamp(claim_made / 1000, UTC)
    if made - found.made <= OLDER:
        return ""
    return (
        f"it was made {found.made:%Y-%m-%dT%H:%M:%SZ}, long before its NodeClaim ({made:%Y-%m-%dT%H:%M:%SZ}), and may "
        f"be what an earlier one of that name left; the setting azure.accept_older says that it is not"
    )
