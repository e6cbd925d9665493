"""TCP relay to an API server that can be blocked: packets are dropped without an error, as in a broken network.
Connections that hang are cut when the relay is unblocked, so that every client must reconnect."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class BlockableRelay:
    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._hanging: list[asyncio.StreamWriter] = []
        self._blocked = False

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"{self._address.scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def block(self) -> None:
        self._blocked = True
        for task in self._tasks:
            task.cancel()

    def free(self) -> None:
        self._blocked = False
        for writer in self._hanging:
            writer.close()
        self._hanging.clear()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        serving = list(self._serving)
        self.block()
        self.free()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        if not self._blocked:
            task = asyncio.ensure_future(self._pass_on(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.wait([task])
        if self._blocked:
            self._hanging.append(writer)
        else:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        except OSError:
            return
        ways = [asyncio.ensure_future(_pump(reader, up_writer)), asyncio.ensure_future(_pump(up_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            up_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
