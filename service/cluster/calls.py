"""Requests and streams to one server with the current credentials, over our own client or through a proxy.
A 401 leads to one fresh reading of them; every call but a stream has an end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from service.cluster.access import Access, Way
from service.cluster.answers import no_answer, problem
from service.cluster.flow import Flows, Stream
from service.cluster.slots import Slots
from service.cluster.wire import Answer, Wires

if TYPE_CHECKING:
    from service.cluster.proxied import Proxied

CALL_TIMEOUT: Final = timedelta(seconds=30)
_REFUSAL_TIMEOUT: Final = 10.0
_LONGEST_REFUSAL: Final = 64 * 1024
_BROKEN: Final = (OSError, TimeoutError, ValueError)
_T = TypeVar("_T")


class _Ask(NamedTuple):
    """`target` is the path with its query, `headers` are whole lines."""

    method: str
    path: str
    target: str
    headers: str
    data: bytes | None
    timeout: float


class Calls:
    def __init__(self, cluster: str, access: Access) -> None:
        self._cluster, self._access = cluster, access
        self._wires, self._flows = Wires(), Flows()
        self._proxied: Proxied | None = None
        self._closed = False
        self._slots = Slots()

    async def aclose(self) -> None:
        self._closed = True
        await self._wires.aclose()
        await self._flows.aclose()
        if self._proxied is not None:
            await self._proxied.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: timedelta = CALL_TIMEOUT,
        urgent: bool = False,
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        headers = f"Accept: {accept}\r\n" if data is None else f"Accept: {accept}\r\nContent-Type: {content_type}\r\n"
        ask = _Ask(method, path, _target(path, query), headers, data, timeout.total_seconds())
        if urgent:
            return await self._called(ask)
        # Its time begins when its turn has come.
        async with self._slots.of(path):
            return await self._called(ask)

    async def _called(self, ask: _Ask) -> bytes:
        way = await self._access.way()
        answer = await self._exchanged(way, ask)
        if answer.status == 401:
            # A 401 means that nothing was done, so the request may be repeated whatever its method.
            way = await self._access.renewed(way)
            answer = await self._exchanged(way, ask)
        if answer.status < 300:
            return answer.body
        # Some servers and proxies repeat what they were sent.
        raise problem(
            answer.status, answer.headers, way.without_token(answer.body), self.asked(ask.method, ask.path)
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], accept: str, first: timedelta) -> AsyncIterator[Stream]:
        """An answer without an end; only its beginning has a time limit. Its connection is never used again."""
        ask = _Ask("GET", path, _target(path, query), f"Accept: {accept}\r\n", None, first.total_seconds())
        way = await self._access.way()
        stream = await self._opened(way, ask)
        if stream.status == 401:
            stream.abort()
            way = await self._access.renewed(way)
            stream = await self._opened(way, ask)
        try:
            if stream.status >= 300:
                body = way.without_token(await _refusal(stream))
                raise problem(stream.status, stream.headers, body, self.asked("GET", path))
            yield stream
        finally:
            stream.abort()

    def asked(self, method: str, path: str) -> str:
        return f"cluster {self._cluster}: {method} {path}"

    async def _exchanged(self, way: Way, ask: _Ask) -> Answer:
        client = self._wires if way.proxy is None else self._by_proxy(ask)
        return await self._answered(ask, client.ask(way, ask.method, ask.target, ask.headers, ask.data, ask.timeout))

    async def _opened(self, way: Way, ask: _Ask) -> Stream:
        client = self._flows if way.proxy is None else self._by_proxy(ask)
        return await self._answered(ask, client.begin(way, ask.target, ask.headers, ask.timeout))

    async def _answered(self, ask: _Ask, answer: Awaitable[_T]) -> _T:
        """Failures are raised outside the handler: from inside they would carry the request along, and the request
        carries the token."""
        try:
            return await answer
        except _BROKEN as error:
            failure = no_answer(error, self.asked(ask.method, ask.path))
        raise failure

    def _by_proxy(self, ask: _Ask) -> "Proxied":
        if self._closed:
            raise no_answer(ConnectionAbortedError("closed by ourselves"), self.asked(ask.method, ask.path))
        if self._proxied is None:
            # Few clusters are behind a proxy, and what it takes is 10 MiB in every process.
            from service.cluster.proxied import Proxied

            self._proxied = Proxied()
        return self._proxied


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def _refusal(stream: Stream) -> bytes:
    """Nothing of one that breaks off: of a token that was cut in two, half could be shown."""
    body = bytearray()
    try:
        async with asyncio.timeout(_REFUSAL_TIMEOUT):
            while len(body) < _LONGEST_REFUSAL and (part := await stream.read()):
                body += part
    except _BROKEN:
        return b""
    return bytes(body)
