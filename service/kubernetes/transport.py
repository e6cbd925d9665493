"""HTTP transport to one API server: the ApiClient of kubernetes_asyncio over an aiohttp session with our settings. It
raises OSError, TimeoutError and ValueError, never with the request, which contains the token."""

import asyncio
import copy
import errno
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from yarl import URL

from service.http_client import IDENTITY, body_codings, close_on_early_data
from service.kubernetes.endpoint import Endpoint
from service.kubernetes.http_messages import (
    ApiRequest,
    ApiResponse,
    MalformedResponse,
    ResponseStream,
    UnusableResponse,
)

KEEP_ALIVE: Final = 60.0
_CONNECT_TIMEOUT: Final = 10.0
# aiohttp stops reading from a connection at twice this size: back pressure for the server.
READ_BUFFER: Final = 256 * 1024
_LARGEST_ERROR_BODY: Final = 64 * 1024
_ERROR_BODY_TIMEOUT: Final = 10.0
# For all requests: the whole exchange is limited by asyncio.timeout instead.
_TIMEOUTS: Final = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT)
_HEADERS: Final = {"User-Agent": "knell", "Accept-Encoding": IDENTITY}
_Result = TypeVar("_Result")


class Transport:
    """The connections to one server. `aclose` ends all calls and streams, and returns when they have ended."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._client: ApiClient | None = None
        self._client_endpoint: Endpoint | None = None
        self._closed = False
        self._running: set[asyncio.Timeout] = set()
        self._streams: set[_AiohttpStream] = set()
        self._ended = asyncio.Event()

    async def call(self, endpoint: Endpoint, request: ApiRequest) -> ApiResponse:
        return await self._with_time_limit(request.timeout, self._exchange(endpoint, request))

    async def stream(self, endpoint: Endpoint, request: ApiRequest) -> ResponseStream:
        """The time limit of the request is for the beginning of the response only."""
        return await self._with_time_limit(request.timeout, self._open(endpoint, request))

    async def aclose(self) -> None:
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._running:
            if not limit.expired():
                limit.reschedule(now)
        if self._running:
            # aiohttp would repeat a request whose connection it closes, so all have to end before.
            await self._ended.wait()
        # Streams, too: their readers would wait for ever.
        for stream in list(self._streams):
            stream.abort()
        if self._session is not None:
            await self._session.close()
        # The event loop closes the transports of aborted streams in its next iteration.
        await asyncio.sleep(0)

    async def _with_time_limit(self, seconds: float, work: Coroutine[None, None, _Result]) -> _Result:
        limit = asyncio.timeout(seconds)
        try:
            if self._closed:
                work.close()
                raise ConnectionAbortedError
            async with limit:
                self._running.add(limit)
                return await work
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = ConnectionAbortedError("closed by ourselves") if self._closed else _translate(error)
        finally:
            self._running.discard(limit)
            if self._closed and not self._running:
                self._ended.set()
        raise failure

    async def _exchange(self, endpoint: Endpoint, request: ApiRequest) -> ApiResponse:
        response = await self._send(endpoint, request)
        try:
            body = await _read_body(response, request.largest) if response.status < 300 else await _error_body(response)
        except BaseException:
            response.close()
            raise
        return ApiResponse(response.status, response.headers, body)

    async def _open(self, endpoint: Endpoint, request: ApiRequest) -> ResponseStream:
        return _AiohttpStream(await self._send(endpoint, request), self._streams)

    async def _send(self, endpoint: Endpoint, request: ApiRequest) -> aiohttp.ClientResponse:
        client = self._client
        if client is None or self._client_endpoint is not endpoint:
            client = await self._client_for(endpoint)
        response: aiohttp.ClientResponse = await client.request(
            request.method,
            endpoint.server + request.path,
            query_params=request.query,
            headers={**request.headers, **_HEADERS, **endpoint.headers()},
            body=request.body,
            _preload_content=False,
            _request_timeout=_TIMEOUTS,
        )
        return response

    async def _client_for(self, endpoint: Endpoint) -> ApiClient:
        """ApiClient takes TLS, server name and proxy once, so another endpoint needs another client. All of them share
        one session, whose pool separates connections by these three."""
        client, known = self._client, self._client_endpoint
        if client is not None and known is not None and _connection_key(known) == _connection_key(endpoint):
            self._client_endpoint = endpoint
            return client
        if self._session is None:
            self._session = _new_session()
        client = await _new_client()
        rest: Any = client.rest_client
        rest.proxy = None if endpoint.proxy is None else endpoint.proxy.reveal()
        rest.server_hostname = endpoint.server_name
        rest.pool_manager = _Requester(self._session, endpoint.tls)
        self._client, self._client_endpoint = client, endpoint
        return client


class _Requester:
    """The session as RESTClientObject uses it, with options that it has no parameters for."""

    def __init__(self, session: aiohttp.ClientSession, tls: ssl.SSLContext | None) -> None:
        self._session, self._tls = session, True if tls is None else tls

    async def request(self, *, method: str, url: str, **options: Any) -> aiohttp.ClientResponse:
        # Encoded: the path is sent as it is, neither quoted again nor normalized.
        where = URL(url, encoded=True)
        return await self._session.request(method, where, ssl=self._tls, allow_redirects=False, **options)


class _AbortingResponse(aiohttp.ClientResponse):
    def close(self) -> None:
        """Without a TLS shutdown, which would wait for the server for up to 30 seconds in the background."""
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class _AiohttpStream:
    def __init__(self, response: aiohttp.ClientResponse, open_streams: "set[_AiohttpStream]") -> None:
        self._response, self._open_streams = response, open_streams
        self._aborted = False
        open_streams.add(self)

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        try:
            _check_encoding(self._response)
            piece = await self._response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _translate(error)
        else:
            if piece or not self._aborted:
                return piece
            failure = ConnectionAbortedError("closed by ourselves")
        raise failure

    async def error_body(self) -> bytes:
        return await _error_body(self._response)

    def abort(self) -> None:
        self._aborted = True
        self._open_streams.discard(self)
        self._response.close()


_template: ApiClient | None = None


async def _new_client() -> ApiClient:
    """A copy of one client per process: the library makes a session for each new one, with a TLS context whose trusted
    certificates take 30 ms to read."""
    global _template
    if _template is None:
        _template = ApiClient(Configuration())
        unused = _template.rest_client.pool_manager
        del _template.rest_client.pool_manager
        await unused.close()
    client = copy.copy(_template)
    client.rest_client = copy.copy(_template.rest_client)
    return client


def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # Concurrent calls are limited by CallLimits, and a watch holds its connection for minutes.
        connector=close_on_early_data(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)),
        cookie_jar=aiohttp.DummyCookieJar(),
        # Proxies are part of the endpoint. The environment would be read on every request, and .netrc with it.
        trust_env=False,
        auto_decompress=False,
        read_bufsize=READ_BUFFER,
        response_class=_AbortingResponse,
    )


def _connection_key(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.server, endpoint.tls, endpoint.server_name, endpoint.proxy and endpoint.proxy.reveal()


def _check_encoding(response: aiohttp.ClientResponse) -> None:
    if body_codings(response.headers):
        raise UnusableResponse("an answer that is compressed although the request forbids it")


async def _read_body(response: aiohttp.ClientResponse, largest: int) -> bytes:
    _check_encoding(response)
    length = response.content_length
    pieces: list[bytes] = []
    size = 0
    if length is None or length <= largest:
        while piece := await response.content.readany():
            size += len(piece)
            if size > largest:
                break
            pieces.append(piece)
        else:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise UnusableResponse(f"an answer of more than {largest:,} bytes")


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """Empty if it breaks off: half of a token could not be masked."""
    body = bytearray()
    try:
        _check_encoding(response)
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT):
            while piece := await response.content.readany():
                body += piece
                if len(body) >= _LARGEST_ERROR_BODY:
                    response.close()
                    break
    except (aiohttp.ClientError, OSError, ValueError):
        response.close()
        return b""
    return bytes(body[:_LARGEST_ERROR_BODY])


def _translate(error: Exception) -> Exception:
    """The same error without the text of aiohttp, which may contain headers and addresses with passwords."""
    match error:
        case UnusableResponse():
            return UnusableResponse(*error.args)
        case ssl.SSLCertVerificationError():
            return ssl.SSLCertVerificationError("not trusted")
        case TimeoutError():
            return TimeoutError()
        case aiohttp.ClientHttpProxyError():
            return ConnectionRefusedError(errno.ECONNREFUSED, f"the proxy refused with status {error.status}")
        case aiohttp.ClientPayloadError():
            return ConnectionResetError("the answer broke off or is not valid HTTP")
        case aiohttp.ClientResponseError():
            return MalformedResponse("an answer that is not valid HTTP")
        case OSError():
            return OSError(error.errno, error.strerror)
        case aiohttp.ClientError():
            return ConnectionResetError(type(error).__name__)
        case _:
            return MalformedResponse("a request that can't be sent as HTTP")
