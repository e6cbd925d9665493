"""Cluster API's own words: which Cluster an object belongs to, whether that is paused, and whether the object moves.

`clusterctl move` pauses a Cluster, strips the finalizers of its objects and deletes them, while it lives on elsewhere:
what is paused or moves is nobody's to mark or to collect. Pure: texts of objects go in.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from service.contract.aws import (
    AWS_CLUSTERS,
    AWS_MANAGED_CONTROL_PLANES,
    CLUSTER_NAME,
    CLUSTER_PAUSED,
    CLUSTERS,
    DELETE_FOR_MOVE,
)
from service.policy.decisions import Decision

Text = bytes | msgspec.Raw

_GROUP: Final = CLUSTERS.partition(".")[2]
_KINDS: Final = {"AWSCluster": AWS_CLUSTERS, "AWSManagedControlPlane": AWS_MANAGED_CONTROL_PLANES}


class NoInfrastructure(ValueError):
    """A Cluster leads to nothing that is collected on AWS; the message says why."""


class _Reference(msgspec.Struct, frozen=True):
    """Since v1beta2 a reference names a group, before that a group and a version."""

    kind: str = ""
    name: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    api_group: str = msgspec.field(default="", name="apiGroup")

    @property
    def group(self) -> str:
        return self.api_group or self.api_version.partition("/")[0]


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True):
    paused: bool | None = None
    infrastructure: _Reference | None = msgspec.field(default=None, name="infrastructureRef")
    control_plane: _Reference | None = msgspec.field(default=None, name="controlPlaneRef")


class _Cluster(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


_object: Final = msgspec.json.Decoder(_Object)
_cluster: Final = msgspec.json.Decoder(_Cluster)


def owning_cluster(metadata: Mapping[str, Any]) -> str:
    """The name of the Cluster, in the same namespace, that an object belongs to by its decoded metadata: its owner,
    else what its label says; empty where it belongs to none."""
    if (owner := _owner(metadata)) is not None:
        return str(owner.get("name", ""))
    return str((metadata.get("labels") or {}).get(CLUSTER_NAME) or "")


def owning_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of that Cluster, as the object's owner reference has it; empty where there is none, for a label has no
    uid."""
    return str((_owner(metadata) or {}).get("uid") or "")


def _owner(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for owner in metadata.get("ownerReferences") or ():
        group, _, _ = str(owner.get("apiVersion", "")).partition("/")
        if owner.get("kind") == "Cluster" and group == _GROUP:
            found: Mapping[str, Any] = owner
            return found
    return None


def owner_in(raw: Text) -> str | None:
    """The same, from an object's text; None where that can't be read, as when it was not kept."""
    try:
        return owning_cluster(_object.decode(raw).metadata)
    except ValueError:
        return None


def paused(cluster: Text) -> str | None:
    """By what a Cluster is paused, from its text; None where it is not. One that can't be read may be."""
    try:
        found = _cluster.decode(cluster)
    except ValueError as error:
        return f"perhaps: it can't be read, {error}"
    if found.spec is not None and found.spec.paused:
        return "spec.paused"
    if CLUSTER_PAUSED in (found.metadata.annotations or {}):
        return f"annotation {CLUSTER_PAUSED}"
    return None


def infrastructure_of(cluster: Text) -> tuple[str, str]:
    """The resource and name, in the same namespace, of what a Cluster has on AWS: the control plane where that is
    EKS, else its infrastructure. Raises NoInfrastructure."""
    try:
        spec = _cluster.decode(cluster).spec or _Spec()
    except ValueError as error:
        raise NoInfrastructure(f"it can't be read: {error}") from None
    for reference in (spec.control_plane, spec.infrastructure):
        if reference is None or not reference.name:
            continue
        resource = _KINDS.get(reference.kind, "")
        if resource and resource.partition(".")[2] == reference.group:
            return resource, reference.name
    if spec.infrastructure is None or not spec.infrastructure.name:
        raise NoInfrastructure("its spec.infrastructureRef names nothing yet")
    kind = spec.infrastructure.kind
    raise NoInfrastructure(f"its infrastructure is {kind} {spec.infrastructure.name}, which is not collected on AWS")


def stands_still(annotations: Mapping[str, str]) -> Decision | None:
    """`retain` for an object that moves to another cluster, `paused` for a paused one; None for all others. As with
    Cluster API itself the annotation counts, whatever its value."""
    if DELETE_FOR_MOVE in annotations:
        reason = f"annotation {DELETE_FOR_MOVE} of the object says that it lives on in another cluster"
        return Decision("retain", reason, DELETE_FOR_MOVE)
    if CLUSTER_PAUSED in annotations:
        return Decision("paused", f"annotation {CLUSTER_PAUSED} is on the object", CLUSTER_PAUSED)
    return None
