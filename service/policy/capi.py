"""Cluster API conventions: its names, the Cluster that owns an object, pauses, and `clusterctl move`.

`clusterctl move` pauses a Cluster, removes the finalizers of its objects and deletes them, while the Cluster continues
elsewhere: the resources of paused or moved objects must not be deleted. Pure functions of objects.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from service.policy.decisions import PolicyDecision

Text = bytes | msgspec.Raw

CLUSTER_PAUSED: Final = "cluster.x-k8s.io/paused"
DELETE_FOR_MOVE: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
CLUSTER_NAME: Final = "cluster.x-k8s.io/cluster-name"
"""Label with the name of the Cluster that an object belongs to."""

CLUSTERS: Final = "clusters.cluster.x-k8s.io"

MACHINES: Final = "machines.cluster.x-k8s.io"
MACHINE_POOLS: Final = "machinepools.cluster.x-k8s.io"
"""Objects that show that a Cluster is still running."""

_GROUP: Final = CLUSTERS.partition(".")[2]


class NoInfrastructure(ValueError):
    """A Cluster has no infrastructure that Knell supports; the message says why."""


class _CapiReference(msgspec.Struct, frozen=True):
    """A reference has a group since v1beta2, before that a group and a version."""

    kind: str = ""
    name: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    api_group: str = msgspec.field(default="", name="apiGroup")

    @property
    def group(self) -> str:
        return self.api_group or self.api_version.partition("/")[0]


class _ClusterMetadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _ClusterSpec(msgspec.Struct, frozen=True):
    paused: bool | None = None
    infrastructure: _CapiReference | None = msgspec.field(default=None, name="infrastructureRef")
    control_plane: _CapiReference | None = msgspec.field(default=None, name="controlPlaneRef")


class _Cluster(msgspec.Struct, frozen=True):
    metadata: _ClusterMetadata = _ClusterMetadata()
    spec: _ClusterSpec | None = None


class _OwnedObject(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


_object: Final = msgspec.json.Decoder(_OwnedObject)
_cluster: Final = msgspec.json.Decoder(_Cluster)


def owning_cluster(metadata: Mapping[str, Any]) -> str:
    """The name of the Cluster, in the same namespace, that owns an object: from its owner reference, else from its
    label; empty where there is none."""
    if (owner := _owner(metadata)) is not None:
        return str(owner.get("name", ""))
    return str((metadata.get("labels") or {}).get(CLUSTER_NAME) or "")


def owning_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of that Cluster from the owner reference; empty where there is none, since a label has no uid."""
    return str((_owner(metadata) or {}).get("uid") or "")


def _owner(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for owner in metadata.get("ownerReferences") or ():
        group, _, _ = str(owner.get("apiVersion", "")).partition("/")
        if owner.get("kind") == "Cluster" and group == _GROUP:
            found: Mapping[str, Any] = owner
            return found
    return None


def read_owning_cluster(raw: Text) -> str | None:
    """The same from an encoded object; None where it can't be decoded, as when it was not stored."""
    try:
        return owning_cluster(_object.decode(raw).metadata)
    except ValueError:
        return None


def pause_reason(cluster: Text) -> str | None:
    """What pauses a Cluster; None where it is not paused. One that can't be decoded counts as paused."""
    try:
        found = _cluster.decode(cluster)
    except ValueError as error:
        return f"perhaps: it can't be read, {error}"
    if found.spec is not None and found.spec.paused:
        return "spec.paused"
    if CLUSTER_PAUSED in (found.metadata.annotations or {}):
        return f"annotation {CLUSTER_PAUSED}"
    return None


def infrastructure_of(cluster: Text, kinds: Mapping[str, str]) -> tuple[str, str]:
    """The resource and name, in the same namespace, of a Cluster's object that Knell supports: the control plane, as
    for EKS, else its infrastructure. `kinds` are the supported resources by kind. Raises NoInfrastructure."""
    try:
        spec = _cluster.decode(cluster).spec or _ClusterSpec()
    except ValueError as error:
        raise NoInfrastructure(f"it can't be read: {error}") from None
    for reference in (spec.control_plane, spec.infrastructure):
        if reference is None or not reference.name:
            continue
        resource = kinds.get(reference.kind, "")
        if resource and resource.partition(".")[2] == reference.group:
            return resource, reference.name
    if spec.infrastructure is None or not spec.infrastructure.name:
        raise NoInfrastructure("its spec.infrastructureRef names nothing yet")
    kind = spec.infrastructure.kind
    raise NoInfrastructure(f"its infrastructure is {kind} {spec.infrastructure.name}, which no known source collects")


def pause_or_move(annotations: Mapping[str, str]) -> PolicyDecision | None:
    """`retain` for an object that moves to another cluster, `paused` for a paused one; None for all others. As with
    Cluster API itself the annotation counts, whatever its value."""
    if DELETE_FOR_MOVE in annotations:
        reason = f"annotation {DELETE_FOR_MOVE} of the object says that it lives on in another cluster"
        return PolicyDecision("retain", reason, DELETE_FOR_MOVE)
    if CLUSTER_PAUSED in annotations:
        return PolicyDecision("paused", f"annotation {CLUSTER_PAUSED} is on the object", CLUSTER_PAUSED)
    return None
