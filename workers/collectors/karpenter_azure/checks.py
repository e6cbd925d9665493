"""Checks of the node resource groups of the settings for `knell doctor`: whether they answer, and which permission is
missing. The reads use the same identity as the workers."""

from collections.abc import AsyncIterator
from typing import Final

from service.contract.checks import CheckResult, CheckState
from service.sources.karpenter_azure import CLUSTER_TAG, AzureNodes, AzureSettings
from workers.collectors.karpenter_azure.claim import STAGES
from workers.collectors.karpenter_azure.listing import AzureLister, ListingMethod
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.providers.azure.model import AzureScope

_MEND: Final = {
    "credentials": "give the process an identity: workload identity, a managed identity, or AZURE_CLIENT_ID and others",
    "denied": "assign the role of deploy/azure/role-definition.json to that identity, on the node resource group",
    "nowhere": "correct subscription and resource_group under azure.nodes",
    "unreachable": "see whether azure.endpoint is right and may be reached from here",
}


async def check_groups(settings: AzureSettings, lister: AzureLister) -> AsyncIterator[CheckResult]:
    for nodes in (one for some in settings.nodes.values() for one in some):
        group = await _check_group(lister, nodes)
        yield group
        if settings.sweep.listing == "graph" and group.state == "fine":
            yield await _check_graph(lister, nodes)


async def _check_group(lister: AzureLister, nodes: AzureNodes) -> CheckResult:
    """One read of each kind: machines and interfaces are listed, of other kinds a missing resource is read."""
    denied: dict[str, AzureError] = {}
    empty: list[str] = []
    for kind in STAGES:
        try:
            if not await _read_kind(lister, nodes, kind):
                empty.append(kind.type.rpartition("/")[2])
        except AzureError as error:
            if error.what != "denied":
                state: CheckState = "unknown" if error.what in ("throttled", "busy", "unreachable") else "wrong"
                return _result(nodes, "provider", state, str(error), _MEND.get(error.what, ""))
            denied[f"{kind.type}/read"] = error
    if denied:
        code = next(iter(denied.values())).code
        what = f"the identity may not {', '.join(denied)} on this group ({code})"
        return _result(nodes, "provider", "wrong", what, _MEND["denied"])
    what = f"machines, interfaces, disks and addresses may be read with tag {CLUSTER_TAG}={nodes.cluster}"
    if empty:
        what += f"; the first page has no {' and no '.join(empty)}: where there should be some, azure.nodes is wrong"
    return _result(nodes, "provider", "fine", what)


async def _read_kind(lister: AzureLister, nodes: AzureNodes, kind: AzureKind) -> bool:
    """False if the first page of a list has nothing of the cluster. Kinds that are not listed always return True."""
    where = AzureScope.of(nodes)
    if kind not in (VM, NIC):
        await lister.find(kind, where, "knell-doctor")
        return True
    async for page in lister.pages(kind, where, nodes.cluster, "provider"):
        return bool(page)
    return False


async def _check_graph(lister: AzureLister, nodes: AzureNodes) -> CheckResult:
    try:
        async for _ in lister.pages(NIC, AzureScope.of(nodes), nodes.cluster, "graph"):
            break
    except AzureError as error:
        if error.what == "denied":
            return _result(nodes, "graph", "warning", f"{error}: sweeps list by the providers", _MEND["denied"])
        state: CheckState = "unknown" if error.what in ("throttled", "busy", "unreachable") else "wrong"
        return _result(nodes, "graph", state, str(error), _MEND.get(error.what, ""))
    return _result(nodes, "graph", "fine", "it answers")


def _result(nodes: AzureNodes, way: ListingMethod, state: CheckState, what: str, mend: str = "") -> CheckResult:
    check = "Resource Graph" if way == "graph" else "Azure"
    return CheckResult(
        check=check, state=state, what=what, mend=mend, node=f"{nodes.resource_group} ({nodes.subscription})"
    )
