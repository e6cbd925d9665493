"""HTTP gateways in front of an API server, AWS and Azure that know which canaries reached them.
A gateway passes requests on, or answers with an error that repeats all headers and the body of the request."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from aiohttp import web
from multidict import CIMultiDict

from tests.reverse_proxy import ReverseProxy
from tests.scenarios.canaries.credentials import Canaries, carried

Shape = Literal["kubernetes", "aws", "azure", "issuer"]


class Gateway(ReverseProxy):
    """`authorization` is what the upstream gets instead of the client's, `issued` are the elements of AWS's answers
    that have another text here; `key` is the canary of the key that clients must have to be let in by `tls`; `echo` is
    the status of the errors that repeat the request, 0 to pass requests on."""

    def __init__(
        self,
        upstream: str,
        shape: Shape,
        canaries: Canaries,
        *,
        authorization: str = "",
        issued: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        key: str = "",
    ) -> None:
        super().__init__(upstream, tls=tls)
        self._shape, self._canaries = shape, canaries
        self._authorization, self._issued, self._key = authorization, issued or {}, key
        self.seen: set[str] = set()
        self.echo = 0
        self.echoed = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode()
        said = "\n".join(f"{name}: {value}" for name, value in request.headers.items()) + "\n" + body
        self.seen.update(carried(said, self._canaries.all.values()))
        if self._key and request.transport is not None and request.transport.get_extra_info("peercert"):
            self.seen.add(self._key)
        if self.echo:
            self.echoed += 1
            return self._repeated(f"{request.method} {request.path_qs} came with {said}")
        return await self.forward(request)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        return await self.pass_through(request, self._authorize, self._exchange)

    def _authorize(self, headers: CIMultiDict[str]) -> None:
        if self._authorization:
            headers["Authorization"] = self._authorization

    def _exchange(self, part: bytes) -> bytes:
        """Keys that AWS issues for a role are canaries, too."""
        for tag, canary in self._issued.items():
            part = re.sub(rf"(?<=<{tag}>)[^<]+".encode(), canary.encode(), part)
        return part

    def _repeated(self, words: str) -> web.Response:
        match self._shape:
            case "kubernetes":
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.echo}
                return web.json_response({**status, "reason": "InternalError", "message": words}, status=self.echo)
            case "azure":
                return web.json_response({"error": {"code": "InternalServerError", "message": words}}, status=self.echo)
            case "issuer":
                said = {"error": "invalid_client", "error_description": words, "code": "Refused", "message": words}
                return web.json_response(said, status=self.echo)
            case "aws":
                safe = words.replace("&", "&amp;").replace("<", "&lt;")
                text = (
                    f"<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>{safe}</Message>"
                    f"</Error><RequestId>1</RequestId></ErrorResponse>"
                )
                return web.Response(text=text, status=self.echo, content_type="text/xml")


class RefusingProxy:
    """A forward proxy that refuses all requests and repeats them in its responses."""

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
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
            self.seen.update(carried(head.decode(), self._canaries.all.values()))
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                % (len(head), head)
            )
            await writer.drain()
        writer.close()
