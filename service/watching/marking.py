"""Marking check: whether an object may get our finalizer now, by the rule of its source. Asked right before a patch."""

from service.kubernetes import KubeObject, KubernetesClient
from service.kubernetes.cluster_reader import ClusterReader
from service.sources.declaration import Source


class MarkingCheck:
    """For objects of one source in one cluster. A source without a rule has no objection."""

    def __init__(self, cluster: KubernetesClient, source: Source) -> None:
        self._rule, self._reader = source.may_mark, ClusterReader(cluster)

    def owner(self, seen: KubeObject) -> str | None:
        """What `objection` needs to know of an object: its owner, or None if that can't be told."""
        return self._rule.owner(seen.raw) if self._rule is not None else ""

    async def objection(self, namespace: str, owner: str | None) -> str:
        """Why an object of that owner may not get our finalizer now; empty if it may. Raises ClusterError."""
        return await self._rule.objection(self._reader.get, namespace, owner) if self._rule is not None else ""
