"""Discovery of all listable resources of some API groups, by the aggregated document or, where the server has none,
group by group. A group that could not be read is reported as unknown, never as empty."""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from service.kubernetes import ClusterError, KubernetesClient, ServedResource, Unavailable
from service.kubernetes.decoding import UNDECODABLE

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
_Document = TypeVar("_Document")


class DiscoveredResources(NamedTuple):
    """One version of each resource, the preferred one that can be listed. `unknown` says of each group that could not
    be read why."""

    resources: list[ServedResource]
    unknown: list[str]


class _AggregatedKind(msgspec.Struct):
    kind: str = ""


class _AggregatedResource(msgspec.Struct, rename="camel"):
    resource: str
    scope: str = ""
    verbs: tuple[str, ...] = ()
    response_kind: _AggregatedKind | None = None


class _AggregatedVersion(msgspec.Struct):
    version: str
    freshness: str = "Current"
    resources: list[_AggregatedResource] | None = None


class _AggregatedName(msgspec.Struct):
    name: str = ""


class _GroupVersion(msgspec.Struct):
    version: str


class _ListedGroup(msgspec.Struct, rename="camel"):
    """An item of the aggregated document, or a group of the plain one."""

    metadata: _AggregatedName = msgspec.field(default_factory=_AggregatedName)
    name: str = ""
    preferred_version: _GroupVersion | None = None
    versions: list[msgspec.Raw] = []


class _Groups(msgspec.Struct):
    kind: str
    items: list[_ListedGroup] | None = None
    groups: list[_ListedGroup] | None = None
    versions: list[str] | None = None


class _PlainResource(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _PlainResources(msgspec.Struct):
    resources: list[_PlainResource] | None = None


async def discover_groups(cluster: KubernetesClient, wanted: Callable[[str], bool]) -> DiscoveredResources:
    """`wanted` says whether a group, with the empty name for the core group, is read. Raises ClusterError if not even
    the names of the groups can be read."""
    found = DiscoveredResources([], [])
    for path in ("/apis", *(("/api",) if wanted("") else ())):
        document = _decoded(await cluster.request("GET", path, accept=_AGGREGATED), _Groups, path)
        if document.kind == "APIGroupDiscoveryList":
            for item in document.items or ():
                if wanted(item.metadata.name):
                    _take_aggregated(found, item)
        elif document.kind == "APIGroupList":
            for group in document.groups or ():
                if wanted(group.name):
                    await _read_group(cluster, found, group.name, _plain_versions(group))
        elif document.kind == "APIVersions":
            await _read_group(cluster, found, "", document.versions or [])
        else:
            raise Unavailable(f"{path}: not the requested document, but {document.kind or 'of no kind'}")
    return found


def _take_aggregated(found: DiscoveredResources, item: _ListedGroup) -> None:
    group, known = item.metadata.name, set[str]()
    for raw in item.versions:
        version = _decoded(raw, _AggregatedVersion, "/apis")
        if version.freshness != "Current":
            found.unknown.append(f"the API server could not read the resources of {group}/{version.version}")
        for one in version.resources or ():
            kind = one.response_kind.kind if one.response_kind is not None else ""
            namespaced = one.scope == "Namespaced"
            _take(found, known, group, version.version, _PlainResource(one.resource, kind, namespaced, one.verbs))


def _plain_versions(group: _ListedGroup) -> list[str]:
    preferred = [group.preferred_version.version] if group.preferred_version is not None else []
    versions = [_decoded(raw, _GroupVersion, "/apis").version for raw in group.versions]
    return preferred + [version for version in versions if version not in preferred]


async def _read_group(cluster: KubernetesClient, found: DiscoveredResources, group: str, versions: list[str]) -> None:
    known = set[str]()
    for version in versions:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            document = _decoded(await cluster.request("GET", path), _PlainResources, path)
        except ClusterError as error:
            found.unknown.append(str(error))
            continue
        for one in document.resources or ():
            if "/" not in one.name:
                _take(found, known, group, version, one)


def _take(found: DiscoveredResources, known: set[str], group: str, version: str, one: _PlainResource) -> None:
    """What can't be listed is no stored object, such as a review."""
    if "list" not in one.verbs or one.name in known:
        return
    known.add(one.name)
    found.resources.append(
        ServedResource(
            resource=f"{one.name}.{group}" if group else one.name,
            group=group,
            version=version,
            plural=one.name,
            kind=one.kind,
            namespaced=one.namespaced,
            status=False,
            verbs=one.verbs,
        )
    )


def _decoded(body: bytes | msgspec.Raw, kind: type[_Document], path: str) -> _Document:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise Unavailable(f"{path}: not the requested document: {error}") from None
