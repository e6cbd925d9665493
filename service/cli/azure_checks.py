"""`knell doctor` for the groups on Azure that the settings name: do they answer, and which permission is missing?
It asks as the service would, with the same identity, and only reads; quotas are not drawn on for it."""

from collections.abc import AsyncIterator
from typing import Final

from service.cli.checks import Finding, State
from service.cli.work import azure_of
from service.contract.azure import CLUSTER_TAG
from service.engine.installation import Installation
from service.settings import AzureNodes
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import KINDS, NIC, VM, Kind
from workers.handlers.azure.listing import Lister, Way
from workers.handlers.azure.model import Where
from workers.judging.wiring import places_in

_MEND: Final = {
    "credentials": "give the process an identity: workload identity, a managed identity, or AZURE_CLIENT_ID and others",
    "denied": "assign the role of deploy/azure/role-definition.json to that identity, on the node resource group",
    "nowhere": "correct subscription and resource_group under azure.nodes",
    "unreachable": "see whether azure.endpoint is right and may be reached from here",
}


async def examine_azure(installation: Installation) -> AsyncIterator[Finding]:
    """Group by group."""
    settings = installation.settings
    places = places_in(settings, {}, installation)
    async with azure_of(settings, places, None) as side:
        for nodes in (one for some in settings.azure.nodes.values() for one in some):
            group = await _group(side.lister, nodes)
            yield group
            if settings.azure.sweep.listing == "graph" and group.state == "fine":
                yield await _graph(side.lister, nodes)
    await places.aclose()


async def _group(lister: Lister, nodes: AzureNodes) -> Finding:
    """One read of each kind: machines and interfaces are listed, of the others one is read that is not there."""
    denied: dict[str, AzureError] = {}
    empty: list[str] = []
    for kind in KINDS:
        try:
            if not await _reads(lister, nodes, kind):
                empty.append(kind.type.rpartition("/")[2])
        except AzureError as error:
            if error.what != "denied":
                state: State = "unknown" if error.what in ("throttled", "busy", "unreachable") else "wrong"
                return _finding(nodes, "provider", state, str(error), _MEND.get(error.what, ""))
            denied[f"{kind.type}/read"] = error
    if denied:
        code = next(iter(denied.values())).code
        what = f"the identity may not {', '.join(denied)} on this group ({code})"
        return _finding(nodes, "provider", "wrong", what, _MEND["denied"])
    what = f"machines, interfaces, disks and addresses may be read with tag {CLUSTER_TAG}={nodes.cluster}"
    if empty:
        what += f"; the first page has no {' and no '.join(empty)}: where there should be some, azure.nodes is wrong"
    return _finding(nodes, "provider", "fine", what)


async def _reads(lister: Lister, nodes: AzureNodes, kind: Kind) -> bool:
    """Whether a list has anything of the cluster on its first page; what is only read proves nothing of that."""
    where = Where.of(nodes)
    if kind not in (VM, NIC):
        await lister.find(kind, where, "knell-doctor")
        return True
    async for page in lister.pages(kind, where, nodes.cluster, "provider"):
        return bool(page)
    return False


async def _graph(lister: Lister, nodes: AzureNodes) -> Finding:
    try:
        async for _ in lister.pages(NIC, Where.of(nodes), nodes.cluster, "graph"):
            break
    except AzureError as error:
        if error.what == "denied":
            return _finding(nodes, "graph", "warning", f"{error}: sweeps list by the providers", _MEND["denied"])
        state: State = "unknown" if error.what in ("throttled", "busy", "unreachable") else "wrong"
        return _finding(nodes, "graph", state, str(error), _MEND.get(error.what, ""))
    return _finding(nodes, "graph", "fine", "it answers")


def _finding(nodes: AzureNodes, way: Way, state: State, what: str, mend: str = "") -> Finding:
    check = "Resource Graph" if way == "graph" else "Azure"
    return Finding(
        check=check, state=state, what=what, mend=mend, node=f"{nodes.resource_group} ({nodes.subscription})"
    )
