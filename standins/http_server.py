"""HTTP server base class of the stand-ins: one port of 127.0.0.1, and the main function of a process of its own.
Subclasses implement the handler."""

import asyncio
import signal
import socket
from typing import Final, Self

import click
import msgspec
from aiohttp import web

BACKLOG: Final = 1024


def listening_socket(port: int = 0) -> socket.socket:
    """A listening socket on 127.0.0.1; port 0 is any free one."""
    return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


class StandInServer:
    """Listens on the given socket, or on any free port."""

    def __init__(self, listener: socket.socket | None = None) -> None:
        self._listener = listener or listening_socket()
        self._runner: web.ServerRunner | None = None

    @property
    def address(self) -> str:
        return url_of(self._listener)

    async def start(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve, access_log=None), shutdown_timeout=0.2)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener, backlog=BACKLOG).start()
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError


def serve_until_signal(server: StandInServer) -> None:
    """Serves until SIGTERM or SIGINT; the first line of output is a JSON object with its address."""
    asyncio.run(_serve_until_signal(server))


async def _serve_until_signal(server: StandInServer) -> None:
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
