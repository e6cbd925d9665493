"""HTTP gateways in front of an API server, AWS and Azure that know which canaries reached them.
A gateway passes requests on, or answers with an error that repeats all headers and the body of the request."""

import asyncio
import base64
import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Literal, Self
from urllib.parse import unquote_plus

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

Shape = Literal["kubernetes", "aws", "azure"]
MSI: Final = "/msi/token"
_HOP: Final = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


def carried(text: str, canaries: Iterable[str]) -> Iterator[str]:
    """The canaries in a text, plain or in the base64 of a Basic header."""
    texts = [text, unquote_plus(text)]
    for word in text.split():
        with contextlib.suppress(ValueError):
            texts.append(base64.b64decode(word, validate=True).decode())
    return (one for one in canaries if any(one in found for found in texts))


class Gateway:
    """`replaced` is the Authorization that the upstream gets instead; `token` is what the managed identity of Azure
    gets, `keys` are the elements of AWS's answers that have another text here; `echo` is the status of the errors that
    repeat the request, 0 to pass requests on."""

    def __init__(
        self,
        upstream: str,
        shape: Shape,
        canaries: Iterable[str],
        replaced: str = "",
        *,
        token: str = "",
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self._keys = keys or {}
        self._upstream, self._shape, self._canaries = upstream, shape, tuple(canaries)
        self._replaced, self._token = replaced, token
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.seen: set[str] = set()
        self.echo = 0
        self.echoed = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        said = "\n".join(f"{name}: {value}" for name, value in request.headers.items()) + "\n" + body.decode()
        self.seen.update(carried(said, self._canaries))
        if self.echo:
            self.echoed += 1
            return self._repeated(f"{request.method} {request.path_qs} came with {said}")
        if request.path == MSI and self._token:
            return web.json_response(
                {"access_token": self._token, "expires_on": str(int(time.time()) + 3600), "token_type": "Bearer",
                 "resource": request.query.get("resource", "")}
            )  # fmt: skip
        return await self._passed_on(request, body)

    async def _passed_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        assert self._session is not None
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in _HOP)
        if self._replaced and "Authorization" in headers:
            headers["Authorization"] = self._replaced
        async with self._session.request(
            request.method, self._upstream + request.raw_path, headers=headers, data=body, allow_redirects=False
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            passed = web.StreamResponse(status=answer.status, headers=kept)
            await passed.prepare(request)
            # A watch has no end: what comes is passed on at once.
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for part in answer.content.iter_any():
                    await passed.write(self._issued(part))
                await passed.write_eof()
            return passed

    def _issued(self, part: bytes) -> bytes:
        """Keys that AWS issues for a role are canaries, too."""
        for tag, canary in self._keys.items():
            part = re.sub(rf"(?<=<{tag}>)[^<]+".encode(), canary.encode(), part)
        return part

    def _repeated(self, words: str) -> web.Response:
        match self._shape:
            case "kubernetes":
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.echo}
                return web.json_response({**status, "reason": "InternalError", "message": words}, status=self.echo)
            case "azure":
                return web.json_response({"error": {"code": "InternalServerError", "message": words}}, status=self.echo)
            case "aws":
                safe = words.replace("&", "&amp;").replace("<", "&lt;")
                text = (
                    f"<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>{safe}</Message>"
                    f"</Error><RequestId>1</RequestId></ErrorResponse>"
                )
                return web.Response(text=text, status=self.echo, content_type="text/xml")


class RefusingProxy:
    """A forward proxy that lets nobody through and repeats what it was asked with."""

    def __init__(self, canaries: Iterable[str]) -> None:
        self._canaries = tuple(canaries)
        self._server: asyncio.Server | None = None
        self.seen: set[str] = set()
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.seen.update(carried(head.decode(), self._canaries))
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                % (len(head), head)
            )
            await writer.drain()
        writer.close()


def forms(canaries: Mapping[str, str]) -> dict[str, tuple[bytes, ...]]:
    """By name, how a canary may show itself: plain, and in base64 wherever in a text it began."""
    found: dict[str, tuple[bytes, ...]] = {}
    for name, canary in canaries.items():
        encoded = []
        for shift in range(3):
            whole = base64.b64encode(b"x" * shift + canary.encode())
            # What stands at the edges depends on the neighbours.
            encoded.append(whole[4 : len(whole) - 4])
        found[name] = (canary.encode(), *encoded)
    return found
