"""Request paths, parsed: group, version, resource, namespace, name and subresource.
Whether the resource is served is decided later, after the permission check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourcePath:
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def permission(self) -> str:
        """The resource as RBAC names it."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def parse(path: str) -> ResourcePath | None:
    """None for a path without a resource, such as discovery."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _parse_resource("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _parse_resource(parts[1], parts[2], parts[3:])
    return None


def _parse_resource(group: str, version: str, parts: list[str]) -> ResourcePath | None:
    namespace = ""
    # A Namespace and its subresources share the path prefix of the objects in it.
    if parts[0] == "namespaces" and (group or len(parts) > 2) and not _own_subresource(group, parts):
        if len(parts) < 3:
            return None
        namespace, parts = parts[1], parts[2:]
    if parts[0] == "namespaces" and not group and len(parts) >= 2:
        # Permission for a Namespace is evaluated within it.
        namespace = parts[1]
    if len(parts) > 3:
        return None
    return ResourcePath(group, version, parts[0], namespace, *parts[1:])


def _own_subresource(group: str, parts: list[str]) -> bool:
    return not group and len(parts) == 3 and parts[2] in ("status", "finalize")
