"""Marking check: whether an object may get our finalizer now, by the rule of its source. Asked right before a patch."""

from service.kubernetes import KubeObject, KubernetesClient, NotServed, ServedResource
from service.sources.declaration import CannotRead, Source


class MarkingCheck:
    """For objects of one source in one cluster. A source without a rule has no objection."""

    def __init__(self, cluster: KubernetesClient, source: Source) -> None:
        self._cluster, self._rule = cluster, source.may_mark
        self._served: dict[str, ServedResource] = {}

    def owner(self, seen: KubeObject) -> str | None:
        """What `objection` needs to know of an object: its owner, or None if that can't be told."""
        return self._rule.owner(seen.raw) if self._rule is not None else ""

    async def objection(self, namespace: str, owner: str | None) -> str:
        """Why an object of that owner may not get our finalizer now; empty if it may. Raises ClusterError."""
        return await self._rule.objection(self._read, namespace, owner) if self._rule is not None else ""

    async def _read(self, resource: str, namespace: str, name: str) -> bytes | None:
        try:
            if resource not in self._served:
                self._served[resource] = await self._cluster.discover(resource)
            found = await self._cluster.get(self._served[resource], namespace, name)
        except NotServed as error:
            # Next time it may be served in another version.
            self._served.pop(resource, None)
            raise CannotRead(str(error)) from error
        return None if found is None else bytes(found.raw)
