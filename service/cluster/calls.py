"""Requests and streams to one server over one pool of connections, with the current credentials.
A 401 leads to one fresh reading of them; every call but a stream has an end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from service.cluster.access import Access, Way
from service.cluster.answers import no_answer, problem
from service.cluster.errors import ClusterError
from service.cluster.slots import Slots
from service.cluster.wire import Answer, Wires

CALL_TIMEOUT: Final = timedelta(seconds=30)
_CONNECT_TIMEOUT: Final = 10.0
_KEEP_IDLE: Final = 60.0
# Compressed answers save a network that is near anyway, and cost processor time on both sides.
_HEADERS: Final = {"User-Agent": "knell", "Accept-Encoding": "identity"}
_REFUSAL_TIMEOUT: Final = 10.0
_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


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
        # Streams hold a connection for minutes, so that the number of connections is bounded for calls only.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_IDLE)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Without the environment: it would also bring .netrc, whose credentials are nobody's business here.
            trust_env=False,
            auto_decompress=True,
        )
        self._wires = Wires()
        self._slots = Slots()

    async def aclose(self) -> None:
        await self._wires.aclose()
        await self._session.close()

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
        target = f"{path}?{urlencode(query)}" if query else path
        ask = _Ask(method, path, target, headers, data, timeout.total_seconds())
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

    async def _exchanged(self, way: Way, ask: _Ask) -> Answer:
        """Failures are raised outside the handler: from inside they would carry the request along, and the request
        carries the token."""
        try:
            if way.proxy is None:
                return await self._wires.ask(way, ask.method, ask.target, ask.headers, ask.data, ask.timeout)
            return await self._through_proxy(way, ask)
        except _BROKEN as error:
            failure = no_answer(error, self.asked(ask.method, ask.path))
        raise failure

    async def _through_proxy(self, way: Way, ask: _Ask) -> Answer:
        lines = (line.partition(": ") for line in ask.headers.splitlines())
        limits = aiohttp.ClientTimeout(total=ask.timeout, sock_connect=_CONNECT_TIMEOUT)
        headers = {name: value for name, _, value in lines}
        response = await self._begin(way, ask.method, ask.target, headers, limits, ask.data)
        async with response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, found, await response.read())

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], accept: str, first: timedelta
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer without an end; only its beginning has a time limit. Its connection is never used again."""
        way = await self._access.way()
        asked = self.asked("GET", path)
        response = await self._opened(way, path, query, accept, first)
        if response.status == 401:
            response.release()
            way = await self._access.renewed(way)
            response = await self._opened(way, path, query, accept, first)
        async with response:
            if response.status >= 300:
                raise await self._problem(response, way, asked)
            try:
                yield response
            finally:
                # Closing alone begins a farewell over TLS that nobody would wait for.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()
                response.close()

    def asked(self, method: str, path: str) -> str:
        return f"cluster {self._cluster}: {method} {path}"

    async def _opened(
        self, way: Way, path: str, query: Mapping[str, str], accept: str, first: timedelta
    ) -> aiohttp.ClientResponse:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=None)
        try:
            async with asyncio.timeout(first.total_seconds()):
                return await self._begin(way, "GET", f"{path}?{urlencode(query)}", {"Accept": accept}, limits)
        except _BROKEN as error:
            failure = no_answer(error, self.asked("GET", path))
        raise failure

    async def _begin(
        self,
        way: Way,
        method: str,
        target: str,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        data: bytes | None = None,
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            URL(way.server + target, encoded=True),
            headers={**headers, **way.headers()},
            data=data,
            ssl=way.tls if way.tls is not None else True,
            server_hostname=way.server_name,
            proxy=None if way.proxy is None else way.proxy.reveal(),
            allow_redirects=False,
            timeout=limits,
        )

    async def _problem(self, response: aiohttp.ClientResponse, way: Way, asked: str) -> ClusterError:
        try:
            async with asyncio.timeout(_REFUSAL_TIMEOUT):
                body = await response.read()
        except _BROKEN:
            body = b""
        # Some servers and proxies repeat what they were sent.
        return problem(response.status, response.headers, way.without_token(body), asked)
