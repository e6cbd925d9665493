"""Lists of the machines and interfaces of a resource group, page by page, by Resource Graph or by the providers' lists.
Resource Graph needs few calls, but lags and may be incomplete; the providers' own lists are current."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal

from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG, resource_name
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.errors import AzureError
from workers.providers.azure.kinds import NIC, VM, AzureKind, lower_id
from workers.providers.azure.model import AzureResource, AzureScope

ListingMethod = Literal["graph", "provider"]

PAGE: Final = 1000
"""Rows per page of Resource Graph, its maximum."""

INCOMPLETE: Final = "Incomplete"
"""Our own code for missing rows of Resource Graph: something may have been deleted between two pages."""

_COLUMNS: Final = {
    VM: "guid=properties.vmId, state=properties.provisioningState",
    NIC: "guid=properties.resourceGuid, state=properties.provisioningState, usedBy=properties.virtualMachine.id",
}


class AzureLister:
    """`calling` returns calls that draw their own tokens."""

    def __init__(self, calling: Callable[[AzureScope], AzureCalls]) -> None:
        self._calling = calling

    def pages(
        self, kind: AzureKind, where: AzureScope, cluster: str, way: ListingMethod
    ) -> AsyncIterator[list[AzureResource]]:
        """All resources with the cluster's tag in that group, except machines of AKS. Complete if it ends without an
        error. Raises AzureError, and then the pages must be discarded."""
        calls = self._calling(where)
        return _by_graph(calls, kind, cluster) if way == "graph" else _by_provider(calls, kind, cluster)

    async def find(self, kind: AzureKind, where: AzureScope, claim: str) -> AzureResource | None:
        """The resource of this kind that a NodeClaim of that name would have, by GET; None only if Azure says there is
        none."""
        return await self._calling(where).read(kind, resource_name(claim))

    async def answers(self, where: AzureScope) -> None:
        """Raises AzureError if the group can't be read. Resource Graph returns no rows, and no error, for a group that
        does not exist or may not be read."""
        async for _ in self._calling(where).pages(NIC):
            return


async def _by_provider(calls: AzureCalls, kind: AzureKind, cluster: str) -> AsyncIterator[list[AzureResource]]:
    async for page in calls.pages(kind):
        yield [found for found in map(kind.shown, page) if is_of(found, cluster)]


async def _by_graph(calls: AzureCalls, kind: AzureKind, cluster: str) -> AsyncIterator[list[AzureResource]]:
    query, seen = _query(kind, calls.where, cluster), 0
    token: str | None = None
    while True:
        answer = await calls.query(query, PAGE, token)
        seen += len(answer.rows)
        yield [found for found in (_row(kind, row) for row in answer.rows) if is_of(found, cluster)]
        token = answer.token
        if not token:
            break
    if seen < answer.total or answer.truncated:
        said = f"{seen} of {answer.total} rows came"
        raise AzureError("unreadable", "Resource Graph", INCOMPLETE, said)


def _query(kind: AzureKind, where: AzureScope, cluster: str) -> str:
    return (
        f"Resources | where type =~ {_quoted(kind.type)} | where resourceGroup =~ {_quoted(where.group)} "
        f"| where tags[{_quoted(CLUSTER_TAG)}] == {_quoted(cluster)} | project id, name, tags, {_COLUMNS[kind]} "
        f"| order by id asc"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _row(kind: AzureKind, row: Any) -> AzureResource:
    return AzureResource(
        kind=kind.name, name=str(row.get("name") or ""), guid=lower_id(row.get("guid")), tags=row.get("tags") or {},
        state=str(row.get("state") or ""), used_by=lower_id(row.get("usedBy")),
    )  # fmt: skip


def is_of(found: AzureResource, cluster: str) -> bool:
    tags = {name.lower(): value for name, value in found.tags.items()}
    return tags.get(CLUSTER_TAG) == cluster and AKS_MACHINE_TAG not in tags
