"""HTTP proxy in front of an API server that records every request and can refuse, delay or drop it.
A client under test sees a real response of an overloaded, broken or silent server, or really none."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from tests.api_servers import TestApi
from tests.reverse_proxy import ReverseProxy

Wanted = Callable[[str, str], bool]


class RecordedRequest(NamedTuple):
    method: str
    path: str


class RecordingProxy(ReverseProxy):
    """`refuse` answers what fits with a status, or with 0 breaks the connection, and `keep_waiting` does not answer it
    at all, until `pass_on`."""

    def __init__(self, api: TestApi) -> None:
        super().__init__(api.url, ca=api.ca)
        self._token = api.token
        self._refusal: tuple[Wanted, int, dict[str, str]] | None = None
        self._kept: tuple[Wanted, asyncio.Event] | None = None
        self.asked: list[RecordedRequest] = []
        self.refused: list[RecordedRequest] = []

    def refuse(self, status: int, wanted: Wanted = lambda method, path: True, **headers: str) -> None:
        self._refusal = wanted, status, headers

    def keep_waiting(self, wanted: Wanted) -> None:
        self._kept = wanted, asyncio.Event()

    def pass_on(self) -> None:
        self._refusal = None
        if self._kept is not None:
            self._kept[1].set()
            self._kept = None

    def count(self, method: str, ending: str) -> int:
        """Requests that were passed on, by the end of their path."""
        return sum(one.method == method and one.path.endswith(ending) for one in self.asked)

    def kubeconfig(self, path: Path) -> Path:
        text = (
            f"{{apiVersion: v1, kind: Config, current-context: local,\n"
            f" clusters: [{{name: local, cluster: {{server: '{self.url}'}}}}],\n"
            f" users: [{{name: admin, user: {{token: '{self._token}'}}}}],\n"
            f" contexts: [{{name: local, context: {{cluster: local, user: admin}}}}]}}\n"
        )
        path.write_text(text, encoding="utf-8")
        return path

    async def answer(self, request: web.Request) -> web.Response:
        asked = RecordedRequest(request.method, request.path)
        if self._refusal is not None and self._refusal[0](request.method, request.path):
            self.refused.append(asked)
            _, status, headers = self._refusal
            if not status and request.transport is not None:
                request.transport.close()
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "no"}
            return web.json_response(body, status=status or 500, headers=headers)
        self.asked.append(asked)
        if self._kept is not None and self._kept[0](request.method, request.path):
            await self._kept[1].wait()
        return await self.fetch(request)
