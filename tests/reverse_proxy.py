"""HTTP reverse proxy on a local port in front of one server; subclasses answer some requests themselves.
A client under test then sees a real response, or really none."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

_HOP: Final = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


class ReverseProxy:
    """An async context. `ca` is what the server's certificate is checked against, `tls` what the proxy serves with."""

    def __init__(self, upstream: str, *, ca: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._upstream, self._ca, self._tls = upstream, ca, tls
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        trusted = ssl.create_default_context(cafile=self._ca) if self._ca else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            # Only the client decides about compression.
            skip_auto_headers=["Accept-Encoding"],
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self.answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.pass_through(request)

    async def fetch(self, request: web.Request) -> web.Response:
        """The whole answer of the server; nothing of it is sent to the client yet."""
        async with self._asked(request, lambda headers: None) as answer:
            return web.Response(body=await answer.read(), status=answer.status, headers=_end_to_end(answer.headers))

    async def pass_through(
        self,
        request: web.Request,
        changed: Callable[[CIMultiDict[str]], None] = lambda headers: None,
        edited: Callable[[bytes], bytes] = lambda part: part,
    ) -> web.StreamResponse:
        """`changed` may change the headers of the request, `edited` each part of the answer's body."""
        async with self._asked(request, changed) as answer:
            passed = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await passed.prepare(request)
            # A watch has no end: what comes is passed on at once.
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                async for part in answer.content.iter_any():
                    await passed.write(edited(part))
                await passed.write_eof()
            return passed

    @contextlib.asynccontextmanager
    async def _asked(
        self, request: web.Request, changed: Callable[[CIMultiDict[str]], None]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        assert self._session is not None
        headers = _end_to_end(request.headers)
        changed(headers)
        async with self._session.request(
            request.method,
            self._upstream + request.raw_path,
            headers=headers,
            data=await request.read(),
            allow_redirects=False,
        ) as answer:
            yield answer


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP)
