"""From a request's path to what it is about: group, version, resource, namespace, name and subresource.
Whether such a thing is served is decided later, after the caller's permission."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
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


def parse(path: str) -> Target | None:
    """None for a path that is about no resource, such as discovery."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _within("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _within(parts[1], parts[2], parts[3:])
    return None


def _within(group: str, version: str, parts: list[str]) -> Target | None:
    namespace = ""
    # A Namespace itself, and its subresources, lie at the same place as what it contains.
    if parts[0] == "namespaces" and (group or len(parts) > 2) and not _own_subresource(group, parts):
        if len(parts) < 3:
            return None
        namespace, parts = parts[1], parts[2:]
    if parts[0] == "namespaces" and not group and len(parts) >= 2:
        # Permission for a Namespace is asked for within it.
        namespace = parts[1]
    if len(parts) > 3:
        return None
    return Target(group, version, parts[0], namespace, *parts[1:])


def _own_subresource(group: str, parts: list[str]) -> bool:
    return not group and len(parts) == 3 and parts[2] in ("status", "finalize")
