"""The small HTTP server beside every long-running command: `/healthz`, `/readyz`, `/metrics`.
It starts before anything else does, so that a process which can't reach its server is seen to live."""

from types import TracebackType
from typing import Self

import msgspec
import structlog

from service.settings import SurfaceSettings
from service.surface.health import Health
from service.surface.http import Answer, HttpServer
from service.surface.metrics import CONTENT_TYPE, Metrics

log = structlog.get_logger(__name__)


class SurfaceFailed(Exception):
    """The port can't be had; the message says why, in one sentence."""


class Surface:
    def __init__(self, settings: SurfaceSettings, health: Health, metrics: Metrics) -> None:
        self._settings, self._health, self._metrics = settings, health, metrics
        self._server = HttpServer({"/healthz": self._alive, "/readyz": self._ready, "/metrics": self._numbers})
        self.port = settings.port

    async def start(self) -> Self:
        try:
            self.port = await self._server.start(self._settings.host, self._settings.port)
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            raise SurfaceFailed(
                f"can't listen on {where} for health and metrics ({error.strerror or error}); "
                "set surface.host and surface.port (KNELL_SURFACE_PORT), 0 takes any free port"
            ) from None
        log.info("surface", host=self._settings.host, port=self.port)
        return self

    async def stop(self) -> None:
        await self._server.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _alive(self) -> Answer:
        return Answer(b"alive\n")

    async def _ready(self) -> Answer:
        found = await self._health.readiness()
        return Answer(msgspec.json.encode(found) + b"\n", 200 if found.ready else 503, "application/json")

    async def _numbers(self) -> Answer:
        return Answer(await self._metrics.page(), content_type=CONTENT_TYPE)
