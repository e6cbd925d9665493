"""What `knell doctor` says of the groups on Azure that the settings name: do they answer, and to whom do they belong?
It asks as the service would, with the same identity, and only reads; quotas are not drawn on for it."""

from collections.abc import AsyncIterator
from typing import Final

from service.cli.checks import Finding, State
from service.cli.work import azure_of
from service.contract.azure import CLUSTER_TAG
from service.settings import AzureNodes
from service.stream.installation import Installation
from workers.handlers.azure.errors import AzureError
from workers.handlers.azure.kinds import NIC, VM, Kind
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
            for kind in (VM, NIC):
                yield await _asked(side.lister, nodes, kind, "provider")
            if settings.azure.sweep.listing == "graph":
                yield await _asked(side.lister, nodes, NIC, "graph")
    await places.aclose()


async def _asked(lister: Lister, nodes: AzureNodes, kind: Kind, way: Way) -> Finding:
    what = kind.type.rpartition("/")[2]
    try:
        found = 0
        async for page in lister.pages(kind, Where.of(nodes), nodes.cluster, way):
            found = len(page)
            break
    except AzureError as error:
        if way == "graph" and error.what == "denied":
            return _finding(nodes, way, "warning", f"{error}: sweeps list by the providers", _MEND["denied"])
        state: State = "unknown" if error.what in ("throttled", "busy", "unreachable") else "wrong"
        return _finding(nodes, way, state, str(error), _MEND.get(error.what, ""))
    if not found and way == "provider":
        said = f"it answers, and its first page has no {what} with tag {CLUSTER_TAG}={nodes.cluster}"
        return _finding(nodes, way, "fine", f"{said}; where there should be some, azure.nodes names another cluster")
    return _finding(nodes, way, "fine", f"it answers with {what}")


def _finding(nodes: AzureNodes, way: Way, state: State, what: str, mend: str = "") -> Finding:
    check = "Resource Graph" if way == "graph" else "Azure"
    return Finding(
        check=check, state=state, what=what, mend=mend, node=f"{nodes.resource_group} ({nodes.subscription})"
    )
