"""Default deletion policies of sources that read their own where their objects are, as from the arguments of a
controller. Deletions that ask at the same time share one read; later ones get a new one."""

from typing import NamedTuple

from service.coalesced_reads import CoalescedReads
from service.kubernetes import ClusterError, KubernetesClient
from service.kubernetes.cluster_reader import ClusterReader
from service.policy.decisions import DefaultPolicy
from service.policy.deletion_policy import needs_default
from service.policy.services import service_of
from service.settings import Settings, SourceSettings
from service.sources.declaration import CannotRead
from service.sources.registry import source_named


class _PolicyKey(NamedTuple):
    cluster: KubernetesClient
    collector: str
    resource: str


class DefaultPolicies:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reads = CoalescedReads.by_key(self._read)

    async def of(self, source: SourceSettings, cluster: KubernetesClient) -> DefaultPolicy | None:
        """None if the settings decide, or if the source has no default of its own."""
        service = service_of(source.resource.partition(".")[2], source.service)
        if not needs_default(self._settings.policy, service, source):
            return None
        return await self._reads.read(_PolicyKey(cluster, source.collector, source.resource))

    async def aclose(self) -> None:
        await self._reads.aclose()

    async def _read(self, key: _PolicyKey) -> DefaultPolicy:
        read = source_named(key.collector).default_policy
        if read is None:
            return DefaultPolicy("", f"collector {key.collector} reads no default policy")
        try:
            return await read(ClusterReader(key.cluster), self._settings, key.resource)
        except (CannotRead, ClusterError) as error:
            return DefaultPolicy("", f"the default of its source can't be read: {error}")
