"""Finds out how a resource is served: its preferred version, its kind, whether it has a status; and how its CRD fares.
Only a plain 404 means that something is not there: what can't be read or is stale is unavailable, never absent."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

import msgspec

from service.kubernetes.errors import NotFound, NotServed, Unavailable, Unreadable
from service.kubernetes.objects import CRDS, Served

CrdState = Literal["built-in", "established", "absent", "going"]
Read = Callable[[str], Awaitable[bytes]]
Document = TypeVar("Document")

# Groups that come with the server itself. For any other group a missing CRD is never explained away: right after a
# CRD was deleted its resource may still be in the discovery documents.
_BUILT_IN: Final = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    }
)


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]
    preferred: _Version | None = msgspec.field(default=None, name="preferredVersion")


class _Resource(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _CrdStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _CrdMetadata(msgspec.Struct):
    name: str
    deleting: str | None = msgspec.field(default=None, name="deletionTimestamp")


class _Crd(msgspec.Struct):
    metadata: _CrdMetadata
    status: _CrdStatus = msgspec.field(default_factory=_CrdStatus)


class _ApiServiceSpec(msgspec.Struct):
    service: dict[str, object] | None = None


class _ApiService(msgspec.Struct):
    spec: _ApiServiceSpec


def split(resource: str) -> tuple[str, str]:
    plural, _, group = resource.partition(".")
    return plural, group


async def discover(read: Read, resource: str) -> Served:
    plural, group = split(resource)
    for version in await _versions(read, group):
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            listed = _decoded(await read(path), _Resources, path).resources or []
        except NotServed:
            # It went away between the two documents; another version may still be there.
            continue
        found = next((known for known in listed if known.name == plural), None)
        if found is not None:
            return Served(
                resource=resource,
                group=group,
                version=version,
                plural=plural,
                kind=found.kind,
                namespaced=found.namespaced,
                status=any(known.name == f"{plural}/status" for known in listed),
                verbs=found.verbs,
            )
    raise NotServed(f"{resource} is not served: its CRD is not installed or not established yet")


async def crd_state(read: Read, resource: str) -> CrdState:
    """One that is not established counts as absent: there is nothing behind it that could be asked."""
    _, group = split(resource)
    if "." not in group or group in _BUILT_IN:
        return "built-in"
    path = CRDS.path(name=resource)
    try:
        crd = _decoded(await read(path), _Crd, path)
    except NotFound:
        return "built-in" if await _aggregated(read, resource) else "absent"
    if crd.metadata.name != resource:
        raise Unreadable(f"{path}: the answer is the definition of {crd.metadata.name!r}")
    if crd.metadata.deleting is not None:
        return "going"
    conditions = crd.status.conditions or []
    if any(known.type == "Terminating" and known.status == "True" for known in conditions):
        return "going"
    established = any(known.type == "Established" and known.status == "True" for known in conditions)
    return "established" if established else "absent"


async def _versions(read: Read, group: str) -> list[str]:
    """Of a group, the preferred one first."""
    if not group:
        return ["v1"]
    path = f"/apis/{group}"
    try:
        document = _decoded(await read(path), _Group, path)
    except NotFound as error:
        raise NotServed(str(error)) from None
    preferred = [document.preferred.version] if document.preferred is not None else []
    return preferred + [known.version for known in document.versions if known.version not in preferred]


async def _aggregated(read: Read, resource: str) -> bool:
    """Whether it is served, and by another server that stands behind its group: those have no CRDs."""
    try:
        served = await discover(read, resource)
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{served.version}.{served.group}"
        return _decoded(await read(path), _ApiService, path).spec.service is not None
    except (NotFound, NotServed):
        return False


def _decoded(body: bytes, kind: type[Document], path: str) -> Document:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path}: not the document that was asked for: {error}") from None
