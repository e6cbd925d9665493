"""Requests and streams through an HTTP proxy, by aiohttp, which knows how one is asked to pass them on.
It is imported only where a cluster is behind one, and its errors leave here as those of our own client."""

import asyncio
import errno
import functools
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from service.cluster.access import Way
from service.cluster.http1 import NoHttp
from service.cluster.route import CONNECT_TIMEOUT
from service.cluster.wire import KEEP_IDLE, Answer

# Compressed answers save a network that is near anyway, and cost processor time on both sides.
_HEADERS: Final = {"User-Agent": "knell", "Accept-Encoding": "identity"}


class Proxied:
    def __init__(self) -> None:
        # How many calls there are at once is bounded elsewhere, and streams hold a connection for minutes.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_IDLE)
        # There is no public way to have connections given up without a farewell.
        handler: type[ResponseHandler] = _Abrupt
        connector._factory = functools.partial(handler, loop=asyncio.get_running_loop())
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Without the environment: it would also bring .netrc, whose credentials are nobody's business here.
            trust_env=False,
            auto_decompress=True,
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def ask(self, way: Way, method: str, target: str, headers: str, body: bytes | None, timeout: float) -> Answer:
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        with _in_our_words():
            async with await self._begin(way, method, target, headers, limits, body) as response:
                return Answer(response.status, _headers(response), await response.read())

    async def begin(self, way: Way, target: str, headers: str, first: float) -> "ProxiedStream":
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=None)
        with _in_our_words():
            async with asyncio.timeout(first):
                return ProxiedStream(await self._begin(way, "GET", target, headers, limits, None))

    async def _begin(
        self, way: Way, method: str, target: str, headers: str, limits: aiohttp.ClientTimeout, body: bytes | None
    ) -> aiohttp.ClientResponse:
        lines = (line.partition(": ") for line in headers.splitlines())
        return await self._session.request(
            method,
            URL(way.server + target, encoded=True),
            headers={**{name: value for name, _, value in lines}, **way.headers()},
            data=body,
            ssl=way.tls if way.tls is not None else True,
            server_hostname=way.server_name,
            proxy=None if way.proxy is None else way.proxy.reveal(),
            allow_redirects=False,
            timeout=limits,
        )


class ProxiedStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status, self.headers = response.status, _headers(response)

    async def read(self) -> bytes:
        with _in_our_words():
            return await self._response.content.readany()

    def abort(self) -> None:
        self._response.close()


class _Abrupt(ResponseHandler):
    """Its farewell over TLS would take a while in which nobody waits for it."""

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        super().close()


def _headers(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise _translated(error) from None


def _translated(error: Exception) -> Exception:
    match error:
        case ssl.SSLCertVerificationError():
            return ssl.SSLCertVerificationError("not trusted")
        case TimeoutError():
            return TimeoutError()
        case aiohttp.ClientHttpProxyError():
            # Its own text carries the headers of the request.
            return ConnectionRefusedError(errno.ECONNREFUSED, f"the proxy refused with status {error.status}")
        case aiohttp.ClientResponseError():
            return NoHttp("an answer that is no HTTP")
        case OSError():
            return OSError(error.errno, error.strerror)
        case _:
            return ConnectionResetError(type(error).__name__)
