"""The Clusters of Cluster API that objects belong to: asked afresh whether they are paused, right before a mark.
Who moves a Cluster pauses it first and strips the finalizers of its objects: one put on after that would stop the move,
and have a cluster collected that lives on elsewhere."""

from service.contract.aws import CLUSTERS
from service.kubernetes import Cluster, NotServed, Served
from service.policy import capi


class Owning:
    """Of one management cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._served: Served | None = None

    async def objection(self, namespace: str, owner: str | None) -> str:
        """Why no object of that Cluster may be marked now; empty where nothing stands against it. One that belongs to
        no Cluster could never be collected, so it is not held back either: when it is given an owner, it is seen again.
        Raises ClusterError where nobody can tell."""
        if owner is None:
            return "nobody can tell to which Cluster it belongs"
        if not owner:
            return "it belongs to no Cluster yet"
        try:
            found = await self._cluster.get(await self._discovered(), namespace, owner)
        except NotServed as error:
            # By the next time it may be served in another version.
            self._served = None
            return f"it belongs to Cluster {namespace}/{owner}, of which nothing is known: {error}"
        if found is None:
            return f"it belongs to Cluster {namespace}/{owner}, and there is none"
        why = capi.paused(found.raw)
        return "" if why is None else f"its Cluster {namespace}/{owner} is paused ({why})"

    async def _discovered(self) -> Served:
        if self._served is None:
            self._served = await self._cluster.discover(CLUSTERS)
        return self._served
