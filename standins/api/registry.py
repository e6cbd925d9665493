"""Which resources are served now: the built-in ones and those of established CustomResourceDefinitions.
A path is looked up by group, version and plural, an owner by group and kind."""

from collections.abc import Iterator

from standins.api.kinds import BUILT_IN, Resource


class Registry:
    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        # Custom resources whose definition is being deleted: still read, never created.
        self.terminating: set[str] = set()
        self.reset()

    def reset(self) -> None:
        self._resources = {(one.group, one.plural): one for one in BUILT_IN}
        self.terminating.clear()

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources.values())

    def add(self, resource: Resource) -> None:
        self._resources[resource.group, resource.plural] = resource

    def drop(self, group: str, plural: str) -> None:
        found = self._resources.pop((group, plural), None)
        if found is not None:
            self.terminating.discard(found.name)

    def named(self, group: str, plural: str) -> Resource | None:
        return self._resources.get((group, plural))

    def served(self, group: str, version: str, plural: str) -> Resource | None:
        found = self.named(group, plural)
        return found if found is not None and found.version(version) is not None else None

    def of_kind(self, group: str, kind: str) -> Resource | None:
        return next((one for one in self if one.group == group and one.kind == kind), None)
