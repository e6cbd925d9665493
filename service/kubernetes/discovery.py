"""Discovery of resources: preferred version, kind, whether there is a status subresource; and the state of the CRD.
Only a plain 404 means that something does not exist: what can't be read or is stale is Unavailable, never absent."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

import msgspec

from service.kubernetes.errors import NotFound, NotServed, Unavailable, Unreadable
from service.kubernetes.objects import CRDS, ServedResource

CrdState = Literal["built-in", "established", "absent", "going"]
Read = Callable[[str], Awaitable[bytes]]
Document = TypeVar("Document")

# Groups that are built into the server. For any other group a missing CRD counts: right after a CRD was deleted its
# resource may still be in the discovery documents.
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


class _ApiResource(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] | None = None


class _CrdCondition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _CrdStatus(msgspec.Struct):
    conditions: list[_CrdCondition] | None = None


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


async def discover(read: Read, resource: str) -> ServedResource:
    plural, group = split(resource)
    for version in await _versions(read, group):
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            listed = _decoded(await read(path), _ApiResourceList, path).resources or []
        except NotServed:
            # It was removed between the two documents; another version may still be served.
            continue
        found = next((known for known in listed if known.name == plural), None)
        if found is not None:
            return ServedResource(
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
    """A CRD that is not established counts as absent, because its resource is not served."""
    _, group = split(resource)
    if "." not in group or group in _BUILT_IN:
        return "built-in"
    path = CRDS.path(name=resource)
    try:
        crd = _decoded(await read(path), _Crd, path)
    except NotFound:
        return "built-in" if await _is_aggregated(read, resource) else "absent"
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
    """The versions of a group, the preferred one first."""
    if not group:
        return ["v1"]
    path = f"/apis/{group}"
    try:
        document = _decoded(await read(path), _Group, path)
    except NotFound as error:
        raise NotServed(str(error)) from None
    preferred = [document.preferred.version] if document.preferred is not None else []
    return preferred + [known.version for known in document.versions if known.version not in preferred]


async def _is_aggregated(read: Read, resource: str) -> bool:
    """Whether it is served by an aggregated API server, which needs no CRD."""
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
        raise Unavailable(f"{path}: not the requested document: {error}") from None


def crd_replaced(resource: str) -> str:
    """Why the absence of objects proves nothing after their CRD was replaced."""
    return f"the CRD of {resource} was deleted and installed again; its objects went with it"
