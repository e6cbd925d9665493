"""Check whether a Node protects a virtual machine: a Node that is Ready, or was until recently, does.
Nodes are read anew for every check; a Node that can't be read protects its machine, too."""

import math
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from service.coalesced_reads import CoalescedReads
from service.kubernetes import ClusterError, KubeObject, Unreadable
from service.sources.karpenter_azure import NODES
from workers.handlers.source_clusters import SourceCluster, SourceClusters

SCHEME: Final = "azure://"


class _NodeCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _NodeMachine(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_NodeCondition, ...] = ()


class _ProtectingNode(msgspec.Struct, frozen=True):
    spec: _NodeMachine = _NodeMachine()
    status: _NodeStatus = _NodeStatus()


class _NodeReadiness(msgspec.Struct, frozen=True):
    """The machine that a Node runs on, and since when it is not ready; None if it is ready or does not say."""

    name: str
    machine: str
    not_ready: datetime | None


_node: Final = msgspec.json.Decoder(_ProtectingNode)


class Protection(NamedTuple):
    """Why a machine must stay. With `waits` that ends without a person, if the Node stays as it is."""

    why: str
    waits: bool = False


class NodeProtection:
    def __init__(self, clusters: SourceClusters, not_ready: timedelta) -> None:
        self._clusters, self._not_ready = clusters, not_ready
        self._lists = CoalescedReads.by_key(self._read_nodes)

    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        """Why a machine (its id in lower case) must stay; None if no Node protects it. `node` is the likely name of its
        Node: if it is right, one read finds it, otherwise all Nodes are listed."""
        cluster = self._clusters.of(source)
        if cluster is None:
            return Protection(f"its Node can't be read: there is no way to the cluster of source {source}")
        try:
            readiness = await self._read_node(cluster, node) if node else None
            # A Node without a provider id yet is recognised by its name.
            if (
                readiness is not None
                and readiness.machine in ("", machine)
                and (why := await self._protection(cluster, readiness))
            ):
                return why
            readiness = (await self._lists.read(source)).get(machine)
            return await self._protection(cluster, readiness) if readiness is not None else None
        except ClusterError as error:
            return Protection(f"its Node can't be read: {type(error).__name__}: {error}")

    async def aclose(self) -> None:
        await self._lists.aclose()

    async def _protection(self, cluster: SourceCluster, readiness: _NodeReadiness) -> Protection | None:
        if readiness.not_ready is None:
            return Protection(f"Node {readiness.name} runs on it and is Ready, or does not say that it is not")
        # Both times are from the API server's clock.
        gone = await cluster.client.server_time() - readiness.not_ready
        if gone < self._not_ready:
            minutes = self._not_ready / timedelta(minutes=1)
            words = f"Node {readiness.name} runs on it, and is not ready for less than {minutes:g} minutes"
            return Protection(words, waits=True)
        return None

    async def _read_node(self, cluster: SourceCluster, name: str) -> _NodeReadiness | None:
        found = await cluster.get(NODES, "", name)
        return None if found is None else _readiness_of(found)

    async def _read_nodes(self, source: str) -> dict[str, _NodeReadiness]:
        """All Nodes, by machine."""
        cluster = self._clusters.of(source)
        if cluster is None:
            raise LookupError(f"no way to the cluster of source {source}")
        served = await cluster.served(NODES)
        found: dict[str, _NodeReadiness] = {}
        async for page in cluster.client.pages(served, None):
            if page.unreadable:
                raise Unreadable(f"not every Node could be read: {page.unreadable[0]}")
            for seen in page.items:
                readiness = _readiness_of(seen)
                before = found.get(readiness.machine)
                # Of several Nodes on one machine, the one that was ready last.
                found[readiness.machine] = readiness if before is None else max(before, readiness, key=_ready_until)
        return found


def _ready_until(readiness: _NodeReadiness) -> float:
    return math.inf if readiness.not_ready is None else readiness.not_ready.timestamp()


def _readiness_of(seen: KubeObject) -> _NodeReadiness:
    try:
        node = _node.decode(seen.raw)
    except msgspec.DecodeError as error:
        raise Unreadable(f"Node {seen.name} can't be read: {error}") from None
    machine = node.spec.provider_id.removeprefix(SCHEME).lower()
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    since = ready.last_transition_time if ready is not None and ready.status in ("False", "Unknown") else None
    return _NodeReadiness(seen.name, machine, since)
