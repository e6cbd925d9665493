"""The clusters of the settings: connected, and each proven to be the one that its name has always meant.
A cluster is known by the uid of its Namespace kube-system; an address or context that leads elsewhere is refused."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from service.engine.installation import Installation
from service.kubernetes import Cluster, ClusterError, connect
from service.policy.cluster_names import fault_of
from service.settings import Settings

KEY: Final = "clusters"


class OtherCluster(ClusterError):
    """The name leads to a cluster that it must not lead to; the message says which, and how to go on."""


class Identities:
    """Which uid each name of a cluster stands for, as it was first seen; kept in Redis."""

    def __init__(self, settings: Settings, installation: Installation) -> None:
        self._clusters = settings.clusters
        self._shard = installation.shards[0]
        self._caller, self._key = installation.caller, installation.keys.of(0, KEY)

    async def remembered(self) -> dict[str, str]:
        answer = await self._caller.command("HGETALL", self._key)
        return {name.decode(): uid.decode() for name, uid in answer.items()}

    async def forget(self, name: str) -> bool:
        return bool(await self._caller.command("HDEL", self._key, name))

    async def confirm(self, name: str, uid: str) -> None:
        """Remembers the first uid that is seen for a name. Raises OtherCluster, see `check`."""
        # By the settings alone, first: what they refuse is not remembered either.
        self.check(name, uid, {})
        pinned = self._clusters[name].uid == uid
        others = [other for other in self._clusters if other != name]
        self.check(name, uid, await self._shard.name_cluster(name, uid, others, pinned=pinned))

    def check(self, name: str, uid: str, known: Mapping[str, str]) -> None:
        """Raises OtherCluster unless this uid is what the name stands for, and no other name does."""
        fault = fault_of(self._clusters, name, uid, known)
        if fault is not None:
            raise OtherCluster(fault)


@asynccontextmanager
async def reached(settings: Settings, name: str) -> AsyncIterator[Cluster]:
    """A connection to one cluster of the settings, through another one where its kubeconfig is kept in a Secret there:
    that one stays open too, for a rotated Secret is read again. Raises ClusterError."""
    wanted = settings.clusters[name]
    async with AsyncExitStack() as stack:
        holder = None
        if wanted.via is not None:
            holder = await stack.enter_async_context(await connect(wanted.via, settings.clusters[wanted.via]))
        yield await stack.enter_async_context(await connect(name, wanted, via=holder))


def cluster_of(settings: Settings, source: str) -> str:
    """The name of the cluster that a source is in."""
    return settings.sources[source].cluster or next(iter(settings.clusters))
