"""Lists the machines and interfaces of one group, page by page, and of each no more than it is judged by.
Resource Graph answers in few calls, but late and not of everything; the providers' own lists are fresh."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal

from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from service.contract.azure import AKS_MACHINE_TAG, CLUSTER_TAG, resource_name
from workers.handlers.azure.calls import AzureCalls
from workers.handlers.azure.errors import AzureError, no_answer_of_azure
from workers.handlers.azure.kinds import NIC, VM, Kind, lower_id
from workers.handlers.azure.model import Found, Where

Way = Literal["graph", "provider"]

PAGE: Final = 1000
"""Rows of a page of Resource Graph: the most that it gives."""

INCOMPLETE: Final = "Incomplete"
"""Our own code for rows of Resource Graph that are not all there: something may have gone between two pages."""

_COLUMNS: Final = {
    VM: "guid=properties.vmId, state=properties.provisioningState",
    NIC: "guid=properties.resourceGuid, state=properties.provisioningState, usedBy=properties.virtualMachine.id",
}


class Lister:
    """`calling` gives calls that draw for themselves."""

    def __init__(self, calling: Callable[[Where], AzureCalls]) -> None:
        self._calling = calling

    def pages(self, kind: Kind, where: Where, cluster: str, way: Way) -> AsyncIterator[list[Found]]:
        """All of the cluster's in that group, by its tag, but for machines of AKS. Complete when it ends without an
        error; raises AzureError, and then nothing is known of any of them."""
        calls = self._calling(where)
        return _by_graph(calls, kind, cluster) if way == "graph" else _by_provider(calls, kind, cluster)

    async def find(self, kind: Kind, where: Where, claim: str) -> Found | None:
        """What a NodeClaim of that name has of this kind, by GET; None only where Azure says that there is none."""
        return await self._calling(where).read(kind, resource_name(claim))

    async def answers(self, where: Where) -> None:
        """Raises AzureError where the group does not answer: Resource Graph shows nothing of one that is not there, and
        nothing of one that may not be read."""
        async for _ in self._calling(where).pages(NIC):
            return


async def _by_provider(calls: AzureCalls, kind: Kind, cluster: str) -> AsyncIterator[list[Found]]:
    async for page in calls.pages(kind):
        yield [found for found in map(kind.shown, page) if is_of(found, cluster)]


async def _by_graph(calls: AzureCalls, kind: Kind, cluster: str) -> AsyncIterator[list[Found]]:
    query, token, seen = _query(kind, calls.where, cluster), None, 0
    while True:
        options = QueryRequestOptions(top=PAGE, skip_token=token, result_format="objectArray")
        answer = await calls.query(QueryRequest(subscriptions=[calls.where.subscription], query=query, options=options))
        rows, total = answer.data, answer.total_records
        if not isinstance(rows, list) or total is None or not all(isinstance(row, dict) for row in rows):
            # The SDK reads what is no answer as one without rows.
            raise no_answer_of_azure("Resource Graph", 200)
        seen += len(rows)
        yield [found for found in (_row(kind, row) for row in rows) if is_of(found, cluster)]
        token = answer.skip_token
        if not token:
            break
    if seen < total or str(answer.result_truncated).lower().endswith("true"):
        said = f"{seen} of {total} rows came"
        raise AzureError("unreadable", "Resource Graph", INCOMPLETE, said)


def _query(kind: Kind, where: Where, cluster: str) -> str:
    return (
        f"Resources | where type =~ {_quoted(kind.type)} | where resourceGroup =~ {_quoted(where.group)} "
        f"| where tags[{_quoted(CLUSTER_TAG)}] == {_quoted(cluster)} | project id, name, tags, {_COLUMNS[kind]} "
        f"| order by id asc"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _row(kind: Kind, row: Any) -> Found:
    return Found(
        kind=kind.name, name=str(row.get("name") or ""), guid=lower_id(row.get("guid")), tags=row.get("tags") or {},
        state=str(row.get("state") or ""), used_by=lower_id(row.get("usedBy")),
    )  # fmt: skip


def is_of(found: Found, cluster: str) -> bool:
    tags = {name.lower(): value for name, value in found.tags.items()}
    return tags.get(CLUSTER_TAG) == cluster and AKS_MACHINE_TAG not in tags
