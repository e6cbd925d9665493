"""Calls to Azure: one request each, without retries, with translated errors and metered quotas.
What response headers say about a quota is reported for every response, also for throttled ones."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from azure.core.rest import HttpRequest
from azure.mgmt.resourcegraph.models import QueryRequest, QueryRequestOptions

from service.contract import Draw
from workers.providers.azure.clients import AzureClients
from workers.providers.azure.errors import AzureError, no_answer_of_azure, retry_after, translated
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.limits import Call, call_draws, remaining
from workers.providers.azure.model import AzureResource, AzureScope, CallMeter
from workers.removal import Accepted

_TAGS: Final = "2021-04-01"
"""API version of tags."""

WITHIN: Final = timedelta(seconds=25)
"""Timeout of one call, including a new access token."""

NOTHING_TO_DELETE: Final = Accepted("said to be gone", timedelta(0))
"""Azure knows of no such resource: no proof, but a reason to read at once."""


class _Headers:
    """Response hook that keeps the headers of a call's response; `answer` is the whole response."""

    def __init__(self) -> None:
        self.seen: Mapping[str, str] | None = None
        self.answer: Any = None

    def __call__(self, response: Any) -> None:
        self.answer = response.http_response
        self.seen = self.answer.headers


class GraphPage(NamedTuple):
    """Rows of Resource Graph; `total` counts those of all pages. Without a token it is the last page."""

    rows: list[dict[str, Any]]
    total: int
    token: str | None
    truncated: bool


class AzureCalls:
    """Calls of one identity in one resource group. `meter` draws their tokens."""

    def __init__(self, clients: AzureClients, where: AzureScope, meter: CallMeter, reserve: float) -> None:
        self.where = where
        self._clients, self._meter, self._reserve = clients, meter, reserve

    async def read(self, kind: AzureKind, name: str) -> AzureResource | None:
        """None only if Azure says that there is no such resource in this group."""
        try:
            found = await self._call(
                kind.reading, f"GET {kind.type}/{name}",
                lambda hook: self._operations(kind).get(self.where.group, name, raw_response_hook=hook),
            )  # fmt: skip
        except AzureError as error:
            if error.what == "gone":
                return None
            raise
        shown = kind.shown(found)
        if (shown.name or "").casefold() != name.casefold():
            # The SDK turns a malformed response into an empty resource; another resource proves nothing.
            raise no_answer_of_azure(f"GET {kind.type}/{name}", 200)
        return shown

    async def delete(self, kind: AzureKind, name: str) -> Accepted:
        """An accepted delete proves nothing. The address of the operation is not stored."""
        seen = _Headers()
        try:
            await self._call(
                kind.removing, f"DELETE {kind.type}/{name}",
                lambda hook: self._operations(kind).begin_delete(
                    self.where.group, name, polling=False, raw_response_hook=hook
                ), seen,
            )  # fmt: skip
        except AzureError as error:
            if error.what == "gone":
                return NOTHING_TO_DELETE
            raise
        headers = {key.lower(): value for key, value in (seen.seen or {}).items()}
        followed = "location" in headers or "azure-asyncoperation" in headers
        return Accepted("deletion accepted", retry_after(headers)) if followed else NOTHING_TO_DELETE

    async def tag(self, kind: AzureKind, name: str, tags: Mapping[str, str]) -> None:
        """Adds tags to a resource by the tags API, which needs no permission to write the resource itself."""
        await self._change_tags("Merge", kind, name, tags)

    async def untag(self, kind: AzureKind, name: str, tags: Mapping[str, str]) -> None:
        """Removes tags that have these values from a resource."""
        await self._change_tags("Delete", kind, name, tags)

    async def _change_tags(self, operation: str, kind: AzureKind, name: str, tags: Mapping[str, str]) -> None:
        path = f"{self.where.id(kind.type, name)}/providers/Microsoft.Resources/tags/default"
        body = {"operation": operation, "properties": {"tags": dict(tags)}}
        request = HttpRequest("PATCH", path, params={"api-version": _TAGS}, json=body)

        async def send(hook: _Headers) -> None:
            response = await self._clients.network(self.where).send_request(request)
            hook.seen = response.headers
            response.raise_for_status()

        await self._call("tags.write", f"PATCH tags of {kind.type}/{name}", send)

    async def query(self, query: str, most: int, token: str | None = None) -> GraphPage:
        """One page of Resource Graph, in this subscription, with at most so many rows."""
        graph = self._clients.graph(self.where)
        options = QueryRequestOptions(top=most, skip_token=token, result_format="objectArray")
        request = QueryRequest(subscriptions=[self.where.subscription], query=query, options=options)
        answer = await self._call(
            "graph", "Resource Graph", lambda hook: graph.resources(request, raw_response_hook=hook)
        )
        rows, total = answer.data, answer.total_records
        if not isinstance(rows, list) or total is None or not all(isinstance(row, dict) for row in rows):
            # The SDK treats a malformed response as one without rows.
            raise no_answer_of_azure("Resource Graph", 200)
        return GraphPage(rows, total, answer.skip_token, str(answer.result_truncated).lower().endswith("true"))

    async def pages(self, kind: AzureKind) -> AsyncIterator[list[Any]]:
        """The provider's own list of the group, page by page; complete if it ends without an error."""
        operations, heard = self._operations(kind), _Headers()
        listed = getattr(operations, "list_by_resource_group", None) or operations.list
        pages = listed(self.where.group, raw_response_hook=heard).by_page()
        first, words = True, f"list {kind.type}"
        while first or pages.continuation_token:
            first = False
            yield await self._call(kind.reading, words, lambda _: _next(pages, heard, words), heard)

    def _operations(self, kind: AzureKind) -> Any:
        client = self._clients.network(self.where) if kind.client == "network" else self._clients.compute(self.where)
        return getattr(client, kind.collection)

    async def _call(self, call: Call, words: str, make: Any, seen: _Headers | None = None) -> Any:
        draws, heard = call_draws(self.where, call, self._reserve), seen or _Headers()
        await self._meter.draw(draws)
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                answer = await make(heard)
        except AzureError as error:
            await self._told(draws, heard.seen or {}, error)
            raise
        except Exception as error:
            found = translated(error, words)
            if found is None:
                raise
            response = getattr(error, "response", None)
            await self._told(draws, response.headers if response is not None else {}, found)
            raise found from None
        await self._told(draws, heard.seen or {}, None)
        return answer

    async def _told(self, draws: Sequence[Draw], headers: Mapping[str, str], error: AzureError | None) -> None:
        """Reports every call once for each limit that it drew on."""
        throttled = error is not None and error.what == "throttled"
        # Resource Manager's limit is the first; the provider's, if it has one, the last.
        which = draws[0] if throttled and error is not None and error.layer == "arm" else draws[-1]
        for draw in draws:
            if throttled and error is not None and draw is which:
                await self._meter.refused(draw, error.after)
            else:
                await self._meter.answered(draw, remaining(draw, headers))


async def _next(pages: Any, heard: _Headers, words: str) -> Any:
    """A page as a list; the SDK's iterator over it makes no further calls."""
    page = await pages.__anext__()
    answer, heard.answer = heard.answer.json(), None
    if not isinstance(answer, dict) or not isinstance(answer.get("value"), list):
        # The SDK would treat it as an empty list.
        raise no_answer_of_azure(words, 200)
    return [one async for one in page]
