"""A plain http front of an API server: it passes everything on, remembers what was asked, and can be told to refuse.
What a client under test sees of an overloaded, broken or silent server is thus a real answer, or really none."""

import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.clusters import TestApi

Wanted = Callable[[str, str], bool]


class Asked(NamedTuple):
    method: str
    path: str


class Front:
    """`refuse` answers what fits with a status, or with 0 breaks the connection, until `pass_on`."""

    def __init__(self, api: TestApi) -> None:
        self._api = api
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._refusal: tuple[Wanted, int, dict[str, str]] | None = None
        self.asked: list[Asked] = []
        self.refused: list[Asked] = []
        self.url = ""

    def refuse(self, status: int, wanted: Wanted = lambda method, path: True, **headers: str) -> None:
        self._refusal = wanted, status, headers

    def pass_on(self) -> None:
        self._refusal = None

    def count(self, method: str, ending: str) -> int:
        """Requests that were passed on, by the end of their path."""
        return sum(one.method == method and one.path.endswith(ending) for one in self.asked)

    def kubeconfig(self, path: Path) -> Path:
        text = (
            f"{{apiVersion: v1, kind: Config, current-context: local,\n"
            f" clusters: [{{name: local, cluster: {{server: '{self.url}'}}}}],\n"
            f" users: [{{name: admin, user: {{token: '{self._api.token}'}}}}],\n"
            f" contexts: [{{name: local, context: {{cluster: local, user: admin}}}}]}}\n"
        )
        path.write_text(text, encoding="utf-8")
        return path

    async def __aenter__(self) -> Self:
        ca = self._api.ca
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=ca) if ca else True)
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
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

    async def _serve(self, request: web.Request) -> web.Response:
        asked = Asked(request.method, request.path)
        if self._refusal is not None and self._refusal[0](request.method, request.path):
            self.refused.append(asked)
            _, status, headers = self._refusal
            if not status and request.transport is not None:
                request.transport.close()
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "no"}
            return web.json_response(body, status=status or 500, headers=headers)
        self.asked.append(asked)
        assert self._session is not None
        headers = {
            name: request.headers[name]
            for name in ("Authorization", "Content-Type", "Accept")
            if name in request.headers
        }
        async with self._session.request(
            request.method, self._api.url + request.path_qs, headers=headers, data=await request.read()
        ) as answer:
            return web.Response(
                body=await answer.read(),
                status=answer.status,
                headers={"Content-Type": answer.headers.get("Content-Type", "application/json")},
            )
