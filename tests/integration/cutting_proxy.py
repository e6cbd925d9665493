"""TCP proxy in front of an API server that can be shut: it then cuts all connections and accepts none.
It can also corrupt responses, for objects that no server would accept."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from service.settings import ClusterSettings
from tests.api_servers import ApiServer


class CuttingProxy:
    """`spoil` is what it replaces in the server's answers, by something of the same length."""

    def __init__(self, url: str, spoil: tuple[bytes, bytes] = (b"", b"")) -> None:
        self._url, self._spoil = urlsplit(url), spoil
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = True

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await self.shut()
        await self._listener.wait_closed()

    def settings(self, server: ApiServer, folder: Path) -> ClusterSettings:
        path = server.kubeconfig(folder / "gated")
        port = self._listener.sockets[0].getsockname()[1]
        path.write_text(path.read_text().replace(f":{self._url.port}", f":{port}"))
        return ClusterSettings(kubeconfig=path, context="local")

    async def shut(self) -> None:
        self._is_open = False
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self) -> None:
        self._is_open = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            if self._is_open:
                await self._through(reader, writer)
        self._tasks.discard(task)
        writer.transport.abort()

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, up_writer, (b"", b"")))
                group.create_task(_pump(up_reader, writer, self._spoil))
        except* ConnectionError:
            pass
        finally:
            up_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spoil: tuple[bytes, bytes]) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk.replace(*spoil) if spoil[0] else chunk)
        await writer.drain()
    # One side is done: so is the other.
    raise ConnectionResetError
