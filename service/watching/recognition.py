"""Collectors as far as the watch side needs them: which data of an object identifies its resources later, and when an
object of Cluster API may get our finalizer. What they collect and how it is removed is in `workers/`."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from service.contract.aws import CAPA, CLUSTERS
from service.contract.azure import KARPENTER_AZURE, read_node_claim
from service.kubernetes import KubernetesClient, NotServed, ServedResource
from service.policy import capi
from service.settings import Problem, SettingsError, SourceSettings

Recognise = Callable[[bytes], str]
"""Turns the JSON of an object into compact data that is kept when the object is gone. Raises Unrecognisable."""


class Unrecognisable(ValueError):
    """The collector can't read from the object what it owns; its deletion is held."""


def _nothing(_raw: bytes) -> str:
    return ""


def _karpenter(raw: bytes) -> str:
    try:
        return msgspec.json.encode(read_node_claim(raw)).decode()
    except msgspec.DecodeError as error:
        raise Unrecognisable(f"it is no NodeClaim as Karpenter writes them: {error}") from None


COLLECTORS: Final[Mapping[str, Recognise]] = {
    # Owns nothing outside: its objects are judged and released.
    "none": _nothing,
    # AWS resources are identified by the live object, which has our finalizer until all of them are gone.
    CAPA: _nothing,
    KARPENTER_AZURE: _karpenter,
}


def check_collectors(sources: Mapping[str, SourceSettings], collectors: Mapping[str, Recognise] = COLLECTORS) -> None:
    """Raises SettingsError that names every source whose collector does not exist."""
    known = ", ".join(sorted(collectors))
    problems = [
        Problem(f"sources.{name}.collector", f"{source.collector!r} given; allowed: {known}")
        for name, source in sources.items()
        if source.collector not in collectors
    ]
    if problems:
        raise SettingsError(problems)


class CapiOwners:
    """Clusters of Cluster API that own objects of a source: read right before a finalizer is added. `clusterctl move`
    pauses the Cluster and removes the finalizers of its objects: one that was added after that would block the move,
    and have a cluster collected that lives on elsewhere."""

    def __init__(self, cluster: KubernetesClient) -> None:
        self._cluster = cluster
        self._served: ServedResource | None = None

    async def objection(self, namespace: str, owner: str | None) -> str:
        """Why an object of that Cluster may not get our finalizer now; empty if it may. An object without a Cluster is
        not collected, so it does not get one; it is seen again when it gets an owner. Raises ClusterError."""
        if owner is None:
            return "its owner references do not say which Cluster it belongs to"
        if not owner:
            return "it belongs to no Cluster yet"
        try:
            found = await self._cluster.get(await self._discover(), namespace, owner)
        except NotServed as error:
            # Next time it may be served in another version.
            self._served = None
            return f"it belongs to Cluster {namespace}/{owner}, which can't be read: {error}"
        if found is None:
            return f"it belongs to Cluster {namespace}/{owner}, and there is none"
        why = capi.pause_reason(found.raw)
        return "" if why is None else f"its Cluster {namespace}/{owner} is paused ({why})"

    async def _discover(self) -> ServedResource:
        if self._served is None:
            self._served = await self._cluster.discover(CLUSTERS)
        return self._served
