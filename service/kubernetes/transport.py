"""HTTP transport to one API server: kubernetes_asyncio's ApiClient over an aiohttp session with settings of our own.
Errors leave it as OSError, TimeoutError or ValueError, never with the request, for that carries the token."""

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
from service.kubernetes.access import Way
from service.kubernetes.exchange import Answer, MalformedAnswer, Request, Stream, UnusableAnswer

KEEP_ALIVE: Final = 60.0
_CONNECT_TIMEOUT: Final = 10.0
# aiohttp stops reading from a connection at twice this size, so that a slow reader holds the server up.
READ_BUFFER: Final = 256 * 1024
_LARGEST_REFUSAL: Final = 64 * 1024
_REFUSAL_TIMEOUT: Final = 10.0
# One object for all requests: the whole exchange is limited by asyncio.timeout instead.
_TIMEOUTS: Final = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT)
_HEADERS: Final = {"User-Agent": "knell", "Accept-Encoding": IDENTITY}
_Result = TypeVar("_Result")


class Transport:
    """The connections to one server. `aclose` ends what is under way, and returns when all of it has ended."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._client: ApiClient | None = None
        self._client_way: Way | None = None
        self._closed = False
        self._running: set[asyncio.Timeout] = set()
        self._streams: set[_ResponseStream] = set()
        self._ended = asyncio.Event()

    async def call(self, way: Way, request: Request) -> Answer:
        return await self._limited(request.timeout, self._exchanged(way, request))

    async def stream(self, way: Way, request: Request) -> Stream:
        """The time limit of the request is for the beginning of the answer only."""
        return await self._limited(request.timeout, self._opened(way, request))

    async def aclose(self) -> None:
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._running:
            if not limit.expired():
                limit.reschedule(now)
        if self._running:
            # aiohttp would repeat a request whose connection it has just closed; none may be left when it closes.
            await self._ended.wait()
        # Nor may a stream: its reader would wait for ever.
        for stream in list(self._streams):
            stream.abort()
        if self._session is not None:
            await self._session.close()
        # The transports of aborted streams are closed in the next round of the loop.
        await asyncio.sleep(0)

    async def _limited(self, seconds: float, work: Coroutine[None, None, _Result]) -> _Result:
        limit = asyncio.timeout(seconds)
        try:
            if self._closed:
                work.close()
                raise ConnectionAbortedError
            async with limit:
                self._running.add(limit)
                return await work
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = ConnectionAbortedError("closed by ourselves") if self._closed else _translated(error)
        finally:
            self._running.discard(limit)
            if self._closed and not self._running:
                self._ended.set()
        raise failure

    async def _exchanged(self, way: Way, request: Request) -> Answer:
        response = await self._sent(way, request)
        try:
            body = await _whole(response, request.largest) if response.status < 300 else await _refusal(response)
        except BaseException:
            response.close()
            raise
        return Answer(response.status, response.headers, body)

    async def _opened(self, way: Way, request: Request) -> Stream:
        return _ResponseStream(await self._sent(way, request), self._streams)

    async def _sent(self, way: Way, request: Request) -> aiohttp.ClientResponse:
        client = self._client
        if client is None or self._client_way is not way:
            client = await self._client_for(way)
        response: aiohttp.ClientResponse = await client.request(
            request.method,
            way.server + request.path,
            query_params=request.query,
            headers={**request.headers, **_HEADERS, **way.headers()},
            body=request.body,
            _preload_content=False,
            _request_timeout=_TIMEOUTS,
        )
        return response

    async def _client_for(self, way: Way) -> ApiClient:
        """ApiClient takes TLS, server name and proxy once, so a way with others gets one of its own. All of them share
        one session, whose pool tells connections apart by these three."""
        client, known = self._client, self._client_way
        if client is not None and known is not None and _place(known) == _place(way):
            self._client_way = way
            return client
        if self._session is None:
            self._session = _new_session()
        client = await _new_client()
        rest: Any = client.rest_client
        rest.proxy = None if way.proxy is None else way.proxy.reveal()
        rest.server_hostname = way.server_name
        rest.pool_manager = _Requester(self._session, way.tls)
        self._client, self._client_way = client, way
        return client


class _Requester:
    """The session as RESTClientObject uses it, with the options that it has no parameters for."""

    def __init__(self, session: aiohttp.ClientSession, tls: ssl.SSLContext | None) -> None:
        self._session, self._tls = session, True if tls is None else tls

    async def request(self, *, method: str, url: str, **options: Any) -> aiohttp.ClientResponse:
        # Encoded: the path goes out as it is, neither quoted anew nor normalized.
        where = URL(url, encoded=True)
        return await self._session.request(method, where, ssl=self._tls, allow_redirects=False, **options)


class _Response(aiohttp.ClientResponse):
    def close(self) -> None:
        """Without a TLS shutdown: it would wait for the server for up to 30 seconds, in the background."""
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class _ResponseStream:
    def __init__(self, response: aiohttp.ClientResponse, everyone: "set[_ResponseStream]") -> None:
        self._response, self._everyone = response, everyone
        self._aborted = False
        everyone.add(self)

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
            failure = _translated(error)
        else:
            if piece or not self._aborted:
                return piece
            failure = ConnectionAbortedError("closed by ourselves")
        raise failure

    async def refusal(self) -> bytes:
        return await _refusal(self._response)

    def abort(self) -> None:
        self._aborted = True
        self._everyone.discard(self)
        self._response.close()


_template: ApiClient | None = None


async def _new_client() -> ApiClient:
    """A copy of one client per process: the library gives each new one a session, with a TLS context of its own whose
    trusted certificates take 30 ms to read."""
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
        # How many calls there are at once is limited above, and a watch holds its connection for minutes.
        connector=close_on_early_data(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)),
        cookie_jar=aiohttp.DummyCookieJar(),
        # Proxies are part of a way. The environment would be read on every request, and bring .netrc with it.
        trust_env=False,
        auto_decompress=False,
        read_bufsize=READ_BUFFER,
        response_class=_Response,
    )


def _place(way: Way) -> tuple[object, ...]:
    return way.server, way.tls, way.server_name, way.proxy and way.proxy.reveal()


def _check_encoding(response: aiohttp.ClientResponse) -> None:
    if body_codings(response.headers):
        raise UnusableAnswer("an answer that is compressed although the request forbids it")


async def _whole(response: aiohttp.ClientResponse, largest: int) -> bytes:
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
    raise UnusableAnswer(f"an answer of more than {largest:,} bytes")


async def _refusal(response: aiohttp.ClientResponse) -> bytes:
    """Nothing of one that breaks off: of a token that was cut in two, half could be shown."""
    body = bytearray()
    try:
        _check_encoding(response)
        async with asyncio.timeout(_REFUSAL_TIMEOUT):
            while piece := await response.content.readany():
                body += piece
                if len(body) >= _LARGEST_REFUSAL:
                    response.close()
                    break
    except (aiohttp.ClientError, OSError, ValueError):
        response.close()
        return b""
    return bytes(body[:_LARGEST_REFUSAL])


def _translated(error: Exception) -> Exception:
    """The same failure without the text of aiohttp, which may hold headers and addresses with passwords."""
    match error:
        case UnusableAnswer():
            return UnusableAnswer(*error.args)
        case ssl.SSLCertVerificationError():
            return ssl.SSLCertVerificationError("not trusted")
        case TimeoutError():
            return TimeoutError()
        case aiohttp.ClientHttpProxyError():
            return ConnectionRefusedError(errno.ECONNREFUSED, f"the proxy refused with status {error.status}")
        case aiohttp.ClientPayloadError():
            return ConnectionResetError("the answer broke off or is not valid HTTP")
        case aiohttp.ClientResponseError():
            return MalformedAnswer("an answer that is not valid HTTP")
        case OSError():
            return OSError(error.errno, error.strerror)
        case aiohttp.ClientError():
            return ConnectionResetError(type(error).__name__)
        case _:
            return MalformedAnswer("a request that can't be sent as HTTP")
