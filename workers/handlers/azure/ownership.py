"""Whose a resource is, by its name and tags as they were read just now: ours, somebody else's, or nobody can tell.
Pure. What is somebody else's is left for good; what nobody can tell is shown to a person."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from service.contract.azure import AKS_MACHINE_TAG, CLUSTER_TAG, KEEP_TAG, NODEPOOL_TAG, RETAINED
from service.contract.kept import is_protection
from workers.handlers.azure.model import Found, Owner

OLDER: Final = timedelta(hours=1)
"""So much older than its NodeClaim a resource may be: clocks differ."""

_CSI = ("kubernetes.io-created-for-pvc-name", "kubernetes.io-created-for-pv-name", "k8s-azure-created-by")


class Judgement(NamedTuple):
    """`left` is nothing of ours, or was kept before; `kept` is protected, `untagged` may be ours or not."""

    kind: Literal["ours", "left", "kept", "untagged"]
    reason: str = ""


def judged(tags: Mapping[str, str], cluster: str, wanted: Mapping[str, str]) -> Judgement:
    """Tags' names have no casing of their own; the cluster's name is compared as Karpenter wrote it."""
    known = {name.lower(): value for name, value in tags.items()}
    if AKS_MACHINE_TAG in known:
        return Judgement("left", "it belongs to a machine of AKS, which AKS removes")
    if is_protection(known.get(KEEP_TAG, "")):
        return Judgement("kept", f"its tag {KEEP_TAG} is {known[KEEP_TAG]!r}: it stays until that is taken off")
    if known.get(RETAINED):
        return Judgement("left", f"its tag {RETAINED} says that it was kept with {known[RETAINED]}")
    found = known.get(CLUSTER_TAG, "")
    if found and found != cluster:
        return Judgement("left", f"its tag {CLUSTER_TAG} names cluster {found!r}, not {cluster!r}")
    missing = [name for name in (CLUSTER_TAG, NODEPOOL_TAG) if not known.get(name)]
    if missing:
        return Judgement("untagged", f"it has no tag {' and no tag '.join(missing)}")
    for name, value in wanted.items():
        if known.get(name.lower()) != value:
            return Judgement("untagged", f"its tag {name} is {known.get(name.lower())!r}, not {value!r}")
    return Judgement("ours")


def older(found: Found, owner: Owner) -> str:
    """Why it may be that of an earlier NodeClaim of the same name; empty where nothing says so."""
    if not owner.made or found.made is None:
        return ""
    made = datetime.fromtimestamp(owner.made / 1000, UTC)
    if made - found.made <= OLDER:
        return ""
    return (
        f"it was made {found.made:%Y-%m-%dT%H:%M:%SZ}, long before its NodeClaim ({made:%Y-%m-%dT%H:%M:%SZ}), and may "
        f"be what an earlier one of that name left; the setting azure.accept_older says that it is not"
    )


def of_csi(name: str, tags: Mapping[str, str]) -> bool:
    """Whether a disk is a volume of a user: those are never ours, whatever else they carry."""
    return name.lower().startswith("pvc-") or any(tag.lower() in _CSI for tag in tags)
