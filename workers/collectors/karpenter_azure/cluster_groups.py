"""Check that a resource group belongs to the cluster: at least one Node of the cluster must run in it.
With the wrong cluster every machine of the group would seem to be an orphan."""

from collections.abc import Sequence

import msgspec

from service.kubernetes import ServedResource, Unreadable
from service.sources.karpenter_azure import NODES, AzureNodes
from workers.handlers.source_clusters import SourceCluster


class _RunningNodeSpec(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _RunningNode(msgspec.Struct, frozen=True):
    spec: _RunningNodeSpec = _RunningNodeSpec()


_node = msgspec.json.Decoder(_RunningNode)


async def groups_with_nodes(cluster: SourceCluster, nodes: Sequence[AzureNodes]) -> set[int]:
    """Numbers of the groups in which a Node of this cluster runs, on any kind of machine."""
    missing = {number: _front(one) for number, one in enumerate(nodes)}
    found: set[int] = set()

    async def every(served: ServedResource) -> None:
        async for page in cluster.client.pages(served, None):
            for seen in page.items:
                runs_on = _provider_id(seen.raw)
                found.update(number for number, front in missing.items() if runs_on.startswith(front))
            if len(found) == len(missing):
                return

    await cluster.on(NODES, every)
    return found


def _provider_id(raw: msgspec.Raw) -> str:
    try:
        return _node.decode(raw).spec.provider_id.lower()
    except msgspec.DecodeError as error:
        raise Unreadable(f"a Node can't be read: {error}") from None


def _front(nodes: AzureNodes) -> str:
    return f"azure:///subscriptions/{nodes.subscription}/resourcegroups/{nodes.resource_group}/".lower()
