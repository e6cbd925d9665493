"""TCP relay whose target can be switched under open connections: the same address then leads to another server."""

import asyncio
import contextlib
import ssl
from types import TracebackType
from typing import Self


class SwitchingRelay:
    """Listens on a free port of 127.0.0.1; with `tls` for encrypted connections, which it decrypts."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._target, self._tls = port, tls
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def switch(self, port: int) -> None:
        """Connections that stand are cut; new ones go there."""
        self._target = port
        for pump in self._pumps:
            pump.cancel()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, up_writer))
                    group.create_task(_pump(up_reader, writer))
            finally:
                await _close(up_writer)
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass  # one side has gone, and this connection with it
        finally:
            self._pumps.discard(task)
            await _close(writer)


class _Ended(Exception):
    """One side has said all it will."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise _Ended


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
