"""What an AWSCluster or AWSManagedControlPlane says of itself: region, VPC, identity, accounts, the name in its tags.
Pure: the object's text goes in; whether it is true, and whether it may be acted on, is asked elsewhere."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from service.contract.aws import ADOPTED, AWS_FINALIZER, AWS_MANAGED_CONTROL_PLANES, EXTERNAL_RESOURCE_GC
from service.policy.aws_accounts import Record, Reference, identity_in, is_own, records_in
from service.policy.capi import owning_cluster, owning_uid
from workers.handlers.aws.model import Whose

LET_GO: Final = f"annotation {EXTERNAL_RESOURCE_GC}=false lets the object go and leaves everything where it is"
"""What a person does who knows better."""

_LONGEST_EKS: Final = 100
"""From so many characters on CAPA makes up a hash instead of a readable name."""

_FIT: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_REGION: Final = re.compile(r"[a-z0-9-]+")
_GROUP: Final = re.compile(r"sg-[0-9A-Za-z]+")


class Unclear(Exception):
    """The object does not say what must be known; the message says what is missing and what to do."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster` is the owning Cluster's name, `name` what stands in the tags; either is empty where nobody says it.
    `vpc_deleted`: Cluster API itself has recorded that it deleted the VPC. `deleting` is the deletionTimestamp, and
    with `marked` the object waits for us. `spared` are the security groups that its spec names, wherever it does:
    Cluster API writes those that it makes itself into the status, so these are the user's. `made` is the
    creationTimestamp in milliseconds; `adopted` is what its annotation says of resources that are older."""

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
    records: tuple[Record, ...]
    annotations: dict[str, str]
    vpc_deleted: bool
    deleting: str
    marked: bool
    made: int = 0
    adopted: bool = False

    @property
    def managed(self) -> bool:
        return self.resource == AWS_MANAGED_CONTROL_PLANES

    @property
    def going(self) -> bool:
        return bool(self.deleting)

    @property
    def called(self) -> str:
        return f"{self.resource} {self.namespace}/{self.object}"

    @property
    def addressed(self) -> str:
        """As the arguments of a kubectl command name it."""
        return f"{self.resource} {self.object} -n {self.namespace}"

    def whose(self, source: str) -> Whose:
        return Whose(source=source, namespace=self.namespace, region=self.region, identity=self.identity)

    @property
    def own_credentials(self) -> bool:
        """Whether the process's own (the default chain) are meant."""
        return is_own(self.identity)


class _Vpc(msgspec.Struct):
    id: str | None = None


class _Network(msgspec.Struct):
    vpc: _Vpc | None = None


class _Spec(msgspec.Struct):
    region: str | None = None
    network: _Network | None = None
    identity: Reference | None = msgspec.field(default=None, name="identityRef")
    eks: str | None = msgspec.field(default=None, name="eksClusterName")


class _Object(msgspec.Struct):
    metadata: dict[str, Any]
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: dict[str, Any] | None = None


_objects: Final = msgspec.json.Decoder(_Object)
_specs: Final = msgspec.json.Decoder(_Spec | None)


def subject_of(resource: str, raw: msgspec.Raw | bytes) -> Subject:
    """What is missing is empty: `whole` says whether it can be acted on. Raises Unclear for what can't be read."""
    try:
        found = _objects.decode(raw)
        spec, everything = _specs.decode(found.spec) or _Spec(), msgspec.json.decode(found.spec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unclear(f"what it says of its region, VPC and identity can't be read: {error}") from None
    metadata = found.metadata
    annotations = {str(key): str(value) for key, value in (metadata.get("annotations") or {}).items()}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    cluster = owning_cluster(metadata) or ""
    managed = resource == AWS_MANAGED_CONTROL_PLANES
    return Subject(
        resource=resource, namespace=namespace, object=name, uid=str(metadata.get("uid") or ""), cluster=cluster,
        cluster_uid=owning_uid(metadata), spared=tuple(sorted(set(_groups(everything)))),
        name=(spec.eks or _eks_name(namespace, name)) if managed else cluster, region=spec.region or "",
        vpc=_vpc(spec), identity=identity_in(spec.identity), records=tuple(records_in(annotations, found.status or {})),
        annotations=annotations, vpc_deleted=_vpc_deleted(found.status or {}),
        deleting=str(metadata.get("deletionTimestamp") or ""),
        marked=AWS_FINALIZER in (metadata.get("finalizers") or ()),
        made=_moment(metadata.get("creationTimestamp")), adopted=annotations.get(ADOPTED, "").lower() == "true",
    )  # fmt: skip


def whole(subject: Subject) -> Subject:
    """Raises Unclear where something that is needed is missing, or can't be what it should be."""
    if not subject.region:
        raise Unclear(
            f"{subject.called} has no spec.region, so nobody can tell where its resources are; set it, or {LET_GO}"
        )
    if not _REGION.fullmatch(subject.region):
        raise Unclear(f"spec.region of {subject.called} is {subject.region!r}, which can't be a region; {LET_GO}")
    if not subject.cluster:
        raise Unclear(
            f"{subject.called} names no Cluster as its owner, so nobody can tell whether that is paused or moving; "
            f"{LET_GO}"
        )
    if not subject.name:
        raise Unclear(
            f"{subject.called} has no spec.eksClusterName, and the one that would be made up for it is too long to "
            f"tell; {LET_GO}"
        )
    if not _FIT.fullmatch(subject.name):
        raise Unclear(f"{subject.name!r} can't be the name of a cluster in tags; {LET_GO}")
    return subject


def _vpc(spec: _Spec) -> str:
    return (spec.network.vpc.id or "") if spec.network is not None and spec.network.vpc is not None else ""


def _moment(said: Any) -> int:
    """In milliseconds; 0 where it is not told."""
    try:
        return int(datetime.fromisoformat(str(said)).timestamp() * 1000)
    except ValueError:
        return 0


def _groups(value: Any) -> Iterator[str]:
    """Overrides by role, groups beside a balancer's own, sources of rules: whatever looks like the id of a group."""
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
    """As Cluster API makes one where the spec has none; empty where it would be a hash."""
    made = f"{namespace}_{name.replace('.', '_')}"
    return made if len(made) < _LONGEST_EKS else ""


def _vpc_deleted(status: dict[str, Any]) -> bool:
    conditions = status.get("conditions")
    return isinstance(conditions, list) and any(
        isinstance(one, dict) and one.get("type") == "VpcReady" and one.get("status") == "False"
        and one.get("reason") == "Deleted" for one in conditions
    )  # fmt: skip
