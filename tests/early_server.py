"""HTTP server that sends more responses than requests it got, on a free local port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from standins.redis_servers import TlsFiles
from tests.canned_server import secured

TOKEN = b'{"access_token": "t", "expires_on": "4102444800", "resource": "r"}'
PATIENCE = 10.0


def http_answer(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    head = b"HTTP/1.1 %d Said\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (status, content_type.encode(), len(body)) + body


class EarlyServer:
    """Answers every request with `answer`, but for one for a token. `speak` sends something on all open connections,
    unasked."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.with_it = b""
        """Sent in one piece with the end of each answer."""
        self.halfway: asyncio.Event | None = None
        """Where there is one, the end of each answer waits for it."""
        self.requests = self.connections = 0
        self.url = ""
        self._open: set[asyncio.StreamWriter] = set()
        self._left = asyncio.Event()

    async def speak(self, unasked: bytes) -> bool:
        """Whether the client has closed all connections that heard it; a client that has not has had time to read."""
        heard = set(self._open)
        for writer in heard:
            writer.write(unasked)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while heard & self._open:
                    self._left.clear()
                    await self._left.wait()
        return not heard & self._open

    async def flood(self, unasked: bytes, most: int) -> int:
        """How much was sent before the client had closed all connections; not more than `most`."""
        heard, sent = set(self._open), 0
        while heard & self._open and sent < most:
            for writer in heard:
                writer.write(unasked)
                sent += len(unasked)
                with suppress(ConnectionError):
                    await writer.drain()
            await asyncio.sleep(0)
        return sent

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while True:
                await self._one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._open.discard(writer)
            self._left.set()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = next((int(one[15:]) for one in head.split(b"\r\n") if one.startswith(b"content-length:")), 0)
        await reader.readexactly(length)
        if head.startswith(b"get /token"):
            writer.write(http_answer(200, TOKEN))
            return
        self.requests += 1
        answer = self.answer
        if self.halfway is not None:
            writer.write(answer[:-2])
            answer = answer[-2:]
            await self.halfway.wait()
        writer.write(answer + self.with_it)

    async def all_left(self) -> None:
        while self._open:
            self._left.clear()
            await self._left.wait()


@asynccontextmanager
async def early_server(answer: bytes, tls_files: TlsFiles | None = None) -> AsyncIterator[EarlyServer]:
    made = EarlyServer(answer)
    context = tls_files and secured(tls_files)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context) as server:
        made.url = f"http{'s' if tls_files else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made
        # The client is closed by then.
        async with asyncio.timeout(PATIENCE):
            await made.all_left()
