"""What stand-ins have in common as servers: one port of this machine, and a life as a process of their own.
What they answer is theirs."""

import asyncio
import signal
from typing import Self

import click
import msgspec
from aiohttp import web


class Listening:
    """A port of 0 is any free one, known once it has started."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._runner: web.ServerRunner | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve, access_log=None), shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError


def serve_alone(server: Listening) -> None:
    """Until a signal; the first line of output is a JSON object with its address."""
    asyncio.run(_until_told(server))


async def _until_told(server: Listening) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    try:
        click.echo(msgspec.json.encode({"address": server.address}).decode())
        await stop.wait()
    finally:
        await server.stop()
