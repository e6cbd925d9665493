"""Whether the cluster that is asked for signs of life is the one whose nodes a group has.
Of the wrong one every machine would seem to be an orphan; of the right one at least some Node runs in the group."""

from collections.abc import Sequence

import msgspec

from service.contract.azure import NODES
from service.kubernetes import Served, Unreadable
from service.settings import AzureNodes
from workers.handlers.places import Place


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _Node(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


_node = msgspec.json.Decoder(_Node)


async def at_home(place: Place, nodes: Sequence[AzureNodes]) -> set[int]:
    """The numbers of the groups in which a Node of this cluster runs, on whatever kind of machine."""
    missing = {number: _front(one) for number, one in enumerate(nodes)}
    found: set[int] = set()

    async def every(served: Served) -> None:
        async for page in place.cluster.pages(served, None):
            for seen in page.items:
                runs_on = _provider_id(seen.raw)
                found.update(number for number, front in missing.items() if runs_on.startswith(front))
            if len(found) == len(missing):
                return

    await place.on(NODES, every)
    return found


def _provider_id(raw: msgspec.Raw) -> str:
    try:
        return _node.decode(raw).spec.provider_id.lower()
    except msgspec.DecodeError as error:
        raise Unreadable(f"a Node can't be read: {error}") from None


def _front(nodes: AzureNodes) -> str:
    return f"azure:///subscriptions/{nodes.subscription}/resourcegroups/{nodes.resource_group}/".lower()
