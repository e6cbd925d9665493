"""TCP proxy in front of a Redis server that drops replies on command: the server executes, the client gets no reply.

It parses requests as commands, so that the reply to one particular command can be dropped and no other."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

Command = Sequence[bytes]
Wanted = Callable[[Command], bool]


def is_script(command: Command) -> bool:
    return command[0].upper() in (b"EVALSHA", b"EVAL")


class DroppingProxy:
    """Listens on a free port of 127.0.0.1. `seen` and `dropped` hold the commands that went through and the ones
    whose answer was lost, in their order."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = host, port
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._wanted: Wanted | None = None
        self._skip = 0
        self._times = 0
        self.seen: list[Command] = []
        self.dropped: list[Command] = []

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def drop(self, wanted: Wanted = is_script, *, nth: int = 1, times: int = 1) -> None:
        """Lose the answers of the n-th command that fits, counted from now, and of those after it, `times` in all."""
        self._wanted, self._skip, self._times = wanted, nth - 1, times

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            await self._connect(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side has gone, and this connection with it
        finally:
            self._pumps.discard(task)
            await _close(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        try:
            while True:
                raw, command = await _command(reader)
                self.seen.append(command)
                lost = self._to_be_lost(command)
                up_writer.write(raw)
                await up_writer.drain()
                answer = await _answer(up_reader)
                if lost and not answer.startswith(b"-NOSCRIPT"):
                    # The whole answer was here: the server has done it.
                    self._times -= 1
                    self.dropped.append(command)
                    return
                writer.write(answer)
                await writer.drain()
        finally:
            await _close(up_writer)

    def _to_be_lost(self, command: Command) -> bool:
        if self._wanted is None or self._times <= 0 or not self._wanted(command):
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        return True


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _command(reader: asyncio.StreamReader) -> tuple[bytes, Command]:
    """One request: an array of bulk strings, and the bytes that it was made of."""
    head = await reader.readuntil(b"\r\n")
    raw, words = [head], []
    for _ in range(int(head[1:])):
        size = await reader.readuntil(b"\r\n")
        word = await reader.readexactly(int(size[1:]) + 2)
        raw += (size, word)
        words.append(word[:-2])
    return b"".join(raw), tuple(words)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """One whole answer of protocol 2, as it stands."""
    head = await reader.readuntil(b"\r\n")
    kind, size = head[:1], head[1:-2]
    if kind == b"$" and int(size) >= 0:
        return head + await reader.readexactly(int(size) + 2)
    if kind == b"*" and int(size) > 0:
        return head + b"".join([await _answer(reader) for _ in range(int(size))])
    return head
