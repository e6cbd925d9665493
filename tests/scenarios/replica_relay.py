"""TCP relay to the replicas of a webhook, in place of a Service: each new connection goes to a replica that accepts it.
It can keep their answers back until a test lets them through."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class ReplicaRelay:
    """Runs in a thread of its own, because tests block while the API server asks. Without replicas it refuses, as a
    Service without endpoints does."""

    def __init__(self) -> None:
        self.replicas: list[int] = []
        self.port = 0
        self.held = threading.Event()
        """Set as soon as an answer is kept back."""
        self._open = asyncio.Event()
        self._turn = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replica-relay", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def hold_answers(self) -> None:
        self.held.clear()
        self._loop.call_soon_threadsafe(self._open.clear)

    def release_answers(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def cut(self) -> None:
        """Ends all connections, as when the replicas die."""
        self._run(self._cut())

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            found = await self._connected()
            if found is not None:
                await self._pass_on(reader, writer, *found)
        except asyncio.CancelledError:
            pass  # the test has cut it
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        replicas = list(self.replicas)
        first = next(self._turn)
        for number in range(len(replicas)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", replicas[(first + number) % len(replicas)])
        return None

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.ensure_future(self._pump(reader, up_writer)),
            asyncio.ensure_future(self._pump(up_reader, writer, answers=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            up_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65536):
                if answers and not self._open.is_set():
                    self.held.set()
                    await self._open.wait()
                writer.write(part)
                await writer.drain()
            # What was written is sent before the other way is ended.
            if writer.can_write_eof():
                writer.write_eof()
                await asyncio.sleep(0)
