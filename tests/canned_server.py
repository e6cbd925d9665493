"""A server that answers byte by byte what a test says, over plain connections or TLS.
And what of our side's connections to one port is still open, which is a question to the garbage collector."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.local.servers import Papers

Script = list[list[bytes]]
"""For each connection, what it answers to one request after the other, in pieces parted by bars."""
CLOSE = b"close the connection"


class Canned:
    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self.connections = self.left = 0
        self.asked = asyncio.Event()
        self._script = script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = self._script[self.connections]
        self.connections += 1
        try:
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                for piece in answer.split(b"|"):
                    if piece == CLOSE:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left += 1
            writer.close()


@asynccontextmanager
async def canned_server(script: Script, papers: Papers | None = None) -> AsyncIterator[tuple[Canned, int]]:
    """Gives its port, too."""
    canned = Canned(script)
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0, ssl=papers and secured(papers))
    try:
        yield canned, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def secured(papers: Papers) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(papers.certificate, papers.key)
    return context


def still_open(port: int) -> list[asyncio.Transport]:
    """The transports from here to that port that have not given up their socket."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, asyncio.Transport) and _reaches(found, port)]


def _reaches(transport: asyncio.Transport, port: int) -> bool:
    try:
        end, peer = transport.get_extra_info("socket"), transport.get_extra_info("peername")
    except AttributeError:
        # One of TLS that is over, and has let go of what it stood on.
        return False
    return end is not None and end.fileno() >= 0 and peer is not None and peer[1:2] == (port,)
