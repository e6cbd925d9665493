"""Client for any path and verb of an API server, on top of kubernetes_asyncio; it returns each response as it came.
Errors are returned and not raised, since half of the suite is about them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
from kubernetes_asyncio import client

T = TypeVar("T")

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_STEP: Final = 0.02
_WITHIN: Final = timedelta(seconds=100)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    kind: str
    text: str

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.text)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["metadata"]
        return found


class Stream:
    """The lines of a running watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, within: timedelta = _WITHIN) -> Any:
        """The next event that is no bookmark."""
        while (event := await self.line(within))["type"] == "BOOKMARK":
            pass
        return event

    async def line(self, within: timedelta = _WITHIN) -> Any:
        async with asyncio.timeout(within.total_seconds()):
            line = await self._response.content.readline()
        assert line, "the watch ended"
        return msgspec.json.decode(line)

    async def rest(self, within: timedelta = _WITHIN) -> list[Any]:
        """All events until the server ends the watch."""
        async with asyncio.timeout(within.total_seconds()):
            text = await self._response.content.read()
        return [msgspec.json.decode(line) for line in text.splitlines()]


class Caller:
    def __init__(self, url: str, token: str, ca: Path | None) -> None:
        self.url, self._ca = url, ca
        configuration = client.Configuration(host=url)
        configuration.api_key = {"BearerToken": f"Bearer {token}"}
        if ca is not None:
            configuration.ssl_ca_cert = str(ca)
        self.client = client.ApiClient(configuration)
        self._token = token

    def bearing(self, token: str) -> "Caller":
        """A client of the same server with another token."""
        return Caller(self.url, token, self._ca)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        kind: str = JSON,
        accept: str = JSON,
    ) -> Reply:
        async with await self._open(method, path, body, query or {}, kind, accept) as response:
            return Reply(response.status, response.headers.get("Content-Type", ""), await response.text())

    async def get(self, path: str, *, accept: str = JSON, **query: object) -> Reply:
        return await self.ask("GET", path, query=query, accept=accept)

    async def post(self, path: str, body: object, **query: object) -> Reply:
        return await self.ask("POST", path, body, query=query)

    async def put(self, path: str, body: object, **query: object) -> Reply:
        return await self.ask("PUT", path, body, query=query)

    async def merge(self, path: str, body: object, **query: object) -> Reply:
        return await self.ask("PATCH", path, body, query=query, kind=MERGE)

    async def patch(self, path: str, *operations: object) -> Reply:
        return await self.ask("PATCH", path, list(operations), kind=PATCH)

    async def delete(self, path: str, body: object = None, **query: object) -> Reply:
        return await self.ask("DELETE", path, body, query=query)

    async def made(self, path: str, body: object) -> Any:
        """Creates what must be accepted."""
        reply = await self.post(path, body)
        assert reply.status == 201, reply.text
        return reply.body

    @contextlib.asynccontextmanager
    async def watch(self, path: str, *, accept: str = JSON, **query: object) -> AsyncIterator[Stream]:
        query = {"watch": "true", **query}
        response = await self._open("GET", path, None, query, JSON, accept)
        try:
            assert response.status == 200, await response.text()
            yield Stream(response)
        finally:
            # Closed in order, TLS would wait for the other side's goodbye, for longer than the test's loop lives.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def _open(
        self, method: str, path: str, body: object, query: Mapping[str, object], kind: str, accept: str
    ) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept, "Content-Type": kind}
        if not self._token:
            del headers["Authorization"]
        response: aiohttp.ClientResponse = await self.client.request(
            method,
            self.url + path,
            query_params=[(name, str(value)) for name, value in query.items()],
            headers=headers,
            body=body,
            _preload_content=False,
        )
        return response


async def eventually(what: str, ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Asks again until it holds; says what was hoped for if it never does."""
    deadline = time.monotonic() + _WITHIN.total_seconds()
    while not holds(found := await ask()):
        assert time.monotonic() < deadline, f"waited in vain until {what}; last: {found}"
        await asyncio.sleep(_STEP)
    return found
