"""Requests and streams to one server over one pool of connections, with the current credentials.
A 401 leads to one fresh reading of them; every call but a stream has an end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from service.cluster.access import Access, Way
from service.cluster.answers import no_answer, problem
from service.cluster.errors import ClusterError

CALL_TIMEOUT: Final = timedelta(seconds=30)
_CONNECT_TIMEOUT: Final = 10.0
_CONCURRENT: Final = 48
_KEEP_IDLE: Final = 60.0
# Compressed answers save a network that is near anyway, and cost processor time on both sides.
_HEADERS: Final = {"User-Agent": "knell", "Accept-Encoding": "identity"}
_REFUSAL_TIMEOUT: Final = 10.0
_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class _Ask(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: Mapping[str, str] | None
    headers: dict[str, str]
    limits: aiohttp.ClientTimeout
    data: bytes | None = None
    # Until the answer begins, where it has no end.
    first: timedelta | None = None


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
        self._slots = asyncio.Semaphore(_CONCURRENT)

    async def aclose(self) -> None:
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
        ask = _Ask(
            method=method,
            path=path,
            query=query,
            headers={"Accept": accept} if data is None else {"Accept": accept, "Content-Type": content_type},
            data=data,
            limits=aiohttp.ClientTimeout(total=timeout.total_seconds(), sock_connect=_CONNECT_TIMEOUT),
        )
        slot = contextlib.nullcontext() if urgent else self._slots
        async with slot, self._answer(ask) as response:
            try:
                return await response.read()
            except _BROKEN as error:
                failure = no_answer(error, self.asked(method, path))
            raise failure

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], accept: str, first: timedelta
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer without an end; only its beginning has a time limit. Its connection is never used again."""
        ask = _Ask(
            method="GET",
            path=path,
            query=query,
            headers={"Accept": accept},
            limits=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=None),
            first=first,
        )
        async with self._answer(ask) as response:
            try:
                yield response
            finally:
                # Closing alone begins a farewell over TLS that nobody would wait for.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()
                response.close()

    def asked(self, method: str, path: str) -> str:
        return f"cluster {self._cluster}: {method} {path}"

    @contextlib.asynccontextmanager
    async def _answer(self, ask: _Ask) -> AsyncIterator[aiohttp.ClientResponse]:
        way = await self._access.way()
        response = await self._begin(way, ask)
        if response.status == 401:
            response.release()
            # A 401 means that nothing was done, so the request may be repeated whatever its method.
            way = await self._access.renewed(way)
            response = await self._begin(way, ask)
        async with response:
            if response.status >= 300:
                raise await self._problem(response, way, self.asked(ask.method, ask.path))
            yield response

    async def _begin(self, way: Way, ask: _Ask) -> aiohttp.ClientResponse:
        """Failures are raised outside the handler: from inside they would carry the request along, and the request
        carries the token."""
        try:
            async with asyncio.timeout(None if ask.first is None else ask.first.total_seconds()):
                return await self._session.request(
                    ask.method,
                    URL(way.server + ask.path, encoded=True).with_query(ask.query or None),
                    headers={**ask.headers, **way.headers()},
                    data=ask.data,
                    ssl=way.tls if way.tls is not None else True,
                    server_hostname=way.server_name,
                    proxy=None if way.proxy is None else way.proxy.reveal(),
                    allow_redirects=False,
                    timeout=ask.limits,
                )
        except _BROKEN as error:
            failure = no_answer(error, self.asked(ask.method, ask.path))
        raise failure

    async def _problem(self, response: aiohttp.ClientResponse, way: Way, asked: str) -> ClusterError:
        try:
            async with asyncio.timeout(_REFUSAL_TIMEOUT):
                body = await response.read()
        except _BROKEN:
            body = b""
        # Some servers and proxies repeat what they were sent.
        return problem(response.status, response.headers, way.without_token(body), asked)
