"""Parser of AWSCluster and AWSManagedControlPlane: region, VPC, identity, accounts, and the name in tags. Pure: it does
not decide whether the object may be acted on."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from service.policy.capi import owning_cluster, owning_uid
from service.sources.capa import ADOPTED, AWS_FINALIZER, AWS_MANAGED_CONTROL_PLANES, EXTERNAL_RESOURCE_GC
from workers.collectors.capa.account_records import (
    AccountRecord,
    IdentityReference,
    account_records,
    identity_name,
    is_own,
)
from workers.providers.aws.model import CallScope

OPT_OUT_HINT: Final = f"annotation {EXTERNAL_RESOURCE_GC}=false releases the object and leaves everything where it is"
"""How to release an object without cleanup."""

_MAX_EKS_NAME: Final = 100
"""From this length on, CAPA generates a hash instead of a readable name."""

_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_REGION: Final = re.compile(r"[a-z0-9-]+")
_GROUP: Final = re.compile(r"sg-[0-9A-Za-z]+")


class UnusableObject(Exception):
    """The object lacks required information; the message says what is missing and what to do."""


class CapaObject(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster` is the owning Cluster's name, `name` the one in tags; either is empty if unknown. `vpc_deleted`:
    Cluster API has recorded that it deleted the VPC. With `has_finalizer` the deletion waits for us. `spared` are the
    security groups that the spec names anywhere: Cluster API writes its own into the status, so these are the user's.
    `made` is the creationTimestamp in milliseconds; `adopted` says whether older resources count as its own."""

    resource: str
    namespace: str
    object: str
    uid: str
    cluster: str
    cluster_uid: str
    name: str
    region: str
    vpc: str
    spared: tuple[str, ...]
    identity: str
    records: tuple[AccountRecord, ...]
    annotations: dict[str, str]
    vpc_deleted: bool
    deletion_timestamp: str
    has_finalizer: bool
    made: int = 0
    adopted: bool = False

    @property
    def managed(self) -> bool:
        return self.resource == AWS_MANAGED_CONTROL_PLANES

    @property
    def is_deleting(self) -> bool:
        return bool(self.deletion_timestamp)

    @property
    def label(self) -> str:
        return f"{self.resource} {self.namespace}/{self.object}"

    @property
    def kubectl_args(self) -> str:
        """Arguments that name it in a kubectl command."""
        return f"{self.resource} {self.object} -n {self.namespace}"

    def scope(self, source: str) -> CallScope:
        return CallScope(source=source, namespace=self.namespace, region=self.region, identity=self.identity)

    @property
    def own_credentials(self) -> bool:
        """Whether it uses the process's own credentials (the default chain)."""
        return is_own(self.identity)


class _Vpc(msgspec.Struct):
    id: str | None = None


class _Network(msgspec.Struct):
    vpc: _Vpc | None = None


class _CapaSpec(msgspec.Struct):
    region: str | None = None
    network: _Network | None = None
    identity: IdentityReference | None = msgspec.field(default=None, name="identityRef")
    eks: str | None = msgspec.field(default=None, name="eksClusterName")


class _CapaDocument(msgspec.Struct):
    metadata: dict[str, Any]
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: dict[str, Any] | None = None


_objects: Final = msgspec.json.Decoder(_CapaDocument)
_specs: Final = msgspec.json.Decoder(_CapaSpec | None)


def parse_capa_object(resource: str, raw: msgspec.Raw | bytes) -> CapaObject:
    """Missing fields are empty: `require_complete` checks them. Raises UnusableObject if it can't be decoded."""
    try:
        found = _objects.decode(raw)
        spec, everything = _specs.decode(found.spec) or _CapaSpec(), msgspec.json.decode(found.spec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableObject(f"what it says of its region, VPC and identity can't be read: {error}") from None
    metadata = found.metadata
    annotations = {str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    cluster = owning_cluster(metadata) or ""
    managed = resource == AWS_MANAGED_CONTROL_PLANES
    return CapaObject(
        resource=resource, namespace=namespace, object=name, uid=str(metadata.get("uid") or ""), cluster=cluster,
        cluster_uid=owning_uid(metadata), spared=tuple(sorted(set(_groups(everything)))),
        name=(spec.eks or _eks_name(namespace, name)) if managed else cluster, region=spec.region or "",
        vpc=_vpc(spec), identity=identity_name(spec.identity),
        records=tuple(account_records(annotations, found.status or {})),
        annotations=annotations, vpc_deleted=_vpc_deleted(found.status or {}),
        deletion_timestamp=str(metadata.get("deletionTimestamp") or ""),
        has_finalizer=AWS_FINALIZER in (metadata.get("finalizers") or ()),
        made=_milliseconds(metadata.get("creationTimestamp")), adopted=annotations.get(ADOPTED, "").lower() == "true",
    )  # fmt: skip


def require_complete(subject: CapaObject) -> CapaObject:
    """Raises UnusableObject if a required field is missing or invalid."""
    if not subject.region:
        raise UnusableObject(
            f"{subject.label} has no spec.region, so where its resources are is unknown; set it, or {OPT_OUT_HINT}"
        )
    if not _REGION.fullmatch(subject.region):
        raise UnusableObject(
            f"spec.region of {subject.label} is {subject.region!r}, which can't be a region; {OPT_OUT_HINT}"
        )
    if not subject.cluster:
        raise UnusableObject(
            f"{subject.label} names no Cluster as its owner, so it is unknown whether that is paused or moving; "
            f"{OPT_OUT_HINT}"
        )
    if not subject.name:
        raise UnusableObject(
            f"{subject.label} has no spec.eksClusterName, and the one that would be made up for it is too long to "
            f"tell; {OPT_OUT_HINT}"
        )
    if not _NAME.fullmatch(subject.name):
        raise UnusableObject(f"{subject.name!r} can't be the name of a cluster in tags; {OPT_OUT_HINT}")
    return subject


def _vpc(spec: _CapaSpec) -> str:
    return (spec.network.vpc.id or "") if spec.network is not None and spec.network.vpc is not None else ""


def _milliseconds(said: Any) -> int:
    """In milliseconds; 0 if it is not a timestamp."""
    try:
        return int(datetime.fromisoformat(str(said)).timestamp() * 1000)
    except ValueError:
        return 0


def _groups(value: Any) -> Iterator[str]:
    """Every string that is a security group id: overrides by role, additional groups, sources of rules."""
    if isinstance(value, str):
        if _GROUP.fullmatch(value.strip()):
            yield value.strip()
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _groups(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _groups(inner)


def _eks_name(namespace: str, name: str) -> str:
    """The name that Cluster API generates if the spec has none; empty if it would be a hash."""
    made = f"{namespace}_{name.replace('.', '_')}"
    return made if len(made) < _MAX_EKS_NAME else ""


def _vpc_deleted(status: dict[str, Any]) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(one, dict) and one.get("type") == "VpcReady" and one.get("status") == "False"
        and one.get("reason") == "Deleted" for one in conditions
    )  # fmt: skip
