"""Discovery documents: the groups, versions and resources that are served.
An unknown path gets a 404 in plain text."""

from typing import Any, Final

from standins.kubernetes_api.api_resources import VERBS, ApiResource, ResourceRegistry, preference
from standins.kubernetes_api.statuses import PageNotFound, not_served

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.4-embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "python",
}


def document(registry: ResourceRegistry, path: str) -> dict[str, Any]:
    """Raises PageNotFound or StatusError."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis"]:
            groups = [_group(registry, name) for name in sorted({one.group for one in registry} - {""})]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group for group in groups if group]}
        case ["apis", group]:
            found = _group(registry, group)
            if found:
                return {"kind": "APIGroup", "apiVersion": "v1", **found}
        case ["apis", group, version]:
            return _resources(registry, group, version)
    raise PageNotFound


def _group(registry: ResourceRegistry, group: str) -> dict[str, Any]:
    """Empty when no version of the group is served."""
    names = {version.name for one in registry if one.group == group for version in one.versions if version.served}
    versions = [{"groupVersion": f"{group}/{name}", "version": name} for name in sorted(names, key=preference)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]} if versions else {}


def _resources(registry: ResourceRegistry, group: str, version: str) -> dict[str, Any]:
    found = [one for one in registry if one.group == group and one.version(version) is not None]
    if not found:
        raise not_served(group)
    entries: list[dict[str, Any]] = []
    for resource in sorted(found, key=lambda one: one.plural):
        entries += _entries(resource, version)
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}


def _entries(resource: ApiResource, version: str) -> list[dict[str, Any]]:
    common = {"namespaced": resource.namespaced, "kind": resource.kind}
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        **common,
        "verbs": list(VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    entries = [entry]
    served = resource.version(version)
    if served is not None and served.status:
        entries.append({"name": f"{resource.plural}/status", "singularName": "", **common, "verbs": _STATUS_VERBS})
    if "finalize" in resource.subresources:
        entries.append({"name": f"{resource.plural}/finalize", "singularName": "", **common, "verbs": ["update"]})
    if "token" in resource.subresources:
        entries.append(
            {
                "name": f"{resource.plural}/token",
                "singularName": "",
                "namespaced": True,
                "group": "authentication.k8s.io",
                "version": "v1",
                "kind": "TokenRequest",
                "verbs": ["create"],
            }
        )
    return entries


_STATUS_VERBS: Final = ["get", "patch", "update"]
