"""Kubernetes client of a cluster admin: creates, changes, deletes and reads many objects at a time.
It shares no code with the client under test, and doesn't block it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from tests.api_servers import ApiServer
from tests.engine.waiting import until
from tests.kube import Crd, KubeRefused, KubeResponse

AT_ONCE = 16
T = TypeVar("T")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Admin:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=self._server.ca) if self._server.ca else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            headers={"Authorization": f"Bearer {self._server.token}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=60),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.close()

    @property
    def _calls(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def request(self, method: str, path: str, body: object = None, *, patch: str = "") -> KubeResponse:
        """`patch` is the kind of a patch: merge, json."""
        content = f"application/{f'{patch}-patch+' if patch else ''}json"
        data = None if body is None else msgspec.json.encode(body)
        async with self._calls.request(
            method, self._server.url + path, data=data, headers={"Content-Type": content}
        ) as answer:
            text = await answer.read()
            try:
                return KubeResponse(answer.status, msgspec.json.decode(text))
            except msgspec.DecodeError:
                return KubeResponse(answer.status, text.decode(errors="replace"))

    async def create(self, path: str, body: object) -> Any:
        return self._accepted(await self.request("POST", path, body), path)

    async def delete(self, path: str) -> Any:
        return self._accepted(await self.request("DELETE", path), path)

    async def patch(self, path: str, body: object, kind: str = "merge") -> Any:
        return self._accepted(await self.request("PATCH", path, body, patch=kind), path)

    async def get(self, path: str) -> Any | None:
        """None for 404 only. A server that is still filling its cache of a kind says 429, and is asked again."""

        async def answered() -> KubeResponse | None:
            answer = await self.request("GET", path)
            return None if answer.status == 429 else answer

        answer = await until(f"GET {path} is answered", answered)
        return None if answer is None or answer.status == 404 else self._accepted(answer, path)

    async def items(self, path: str) -> list[Any]:
        """Everything in a collection; nothing where there is no such collection."""
        found = await self.get(path)
        return [] if found is None else list(found["items"])

    async def changes(self, path: str, version: str) -> AsyncIterator[Any]:
        """The events of a watch, until it is left."""
        url = f"{self._server.url}{path}?watch=1&resourceVersion={version}"
        async with self._calls.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            assert answer.status == 200
            rest = b""
            async for part in answer.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield msgspec.json.decode(line)

    async def install(self, crd: Crd) -> None:
        """Returns when its objects can be listed."""
        await self.create(CRDS, crd.definition())

        async def served() -> bool:
            return (await self.request("GET", crd.path())).status == 200

        await until(f"{crd.resource} is served", served)

    def _accepted(self, answer: KubeResponse, path: str) -> Any:
        if answer.status not in (200, 201, 202):
            raise KubeRefused(f"{path}: {answer.status} {answer.body}")
        return answer.body


async def each(work: Callable[[T], Awaitable[object]], many: Iterable[T], at_once: int = AT_ONCE) -> None:
    """The same for all of them, some at a time."""
    rest = iter(many)

    async def take() -> None:
        for one in rest:
            await work(one)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())
