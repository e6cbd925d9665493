"""Managed disks. Volumes of a CSI driver are users' data, and are never deleted."""

from collections.abc import Mapping
from typing import Any, Final

from workers.providers.azure.kinds.declaration import AzureKind, lower_id, state_of, tags_of
from workers.providers.azure.model import AzureResource

_CSI: Final = ("kubernetes.io-created-for-pvc-name", "kubernetes.io-created-for-pv-name", "k8s-azure-created-by")


def of_csi(name: str, tags: Mapping[str, str]) -> bool:
    """Whether a disk is a user's volume, whatever other tags it has."""
    return name.lower().startswith("pvc-") or any(tag.lower() in _CSI for tag in tags)


def _shown(one: Any) -> AzureResource:
    return AzureResource(
        kind=DISK.name, name=one.name, guid=lower_id(one.unique_id), tags=tags_of(one), state=state_of(one),
        used_by=lower_id(one.managed_by), made=one.time_created,
    )  # fmt: skip


def _spared(found: AzureResource) -> str:
    return "it is a volume of a CSI driver" if of_csi(found.name, found.tags) else ""


DISK: Final = AzureKind(
    name="azure-disk",
    title="disk",
    type="Microsoft.Compute/disks",
    client="compute",
    collection="disks",
    reading="compute.read",
    removing="disk.delete",
    shown=_shown,
    spared=_spared,
    permissions=("Microsoft.Compute/disks/read", "Microsoft.Compute/disks/delete"),
)
