"""TCP server that sends exactly the bytes that a test gives it, in plain text or over TLS.
Also lists the sockets of this process that are still connected to a port."""

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from standins.redis_servers import TlsFiles

Script = list[list[bytes]]
"""For each connection, what it answers to one request after the other, in pieces parted by bars."""
CLOSE = b"close the connection"


class CannedServer:
    def __init__(self, script: Script) -> None:
        self.requests: list[bytes] = []
        self.connections = self.left = 0
        self.asked = asyncio.Event()
        self._closed = asyncio.Event()
        self._script = script

    async def all_closed(self) -> None:
        """Returns when every connection to this server is closed, as this server sees it."""
        while self.left < self.connections:
            self._closed.clear()
            await self._closed.wait()

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
            self._closed.set()
            writer.close()


@asynccontextmanager
async def canned_server(script: Script, tls_files: TlsFiles | None = None) -> AsyncIterator[tuple[CannedServer, int]]:
    """Gives its port, too."""
    canned = CannedServer(script)
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0, ssl=tls_files and secured(tls_files))
    try:
        yield canned, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def secured(tls_files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls_files.certificate, tls_files.key)
    return context


def still_open(port: int) -> list[int]:
    """The file descriptors of this process's sockets whose peer is that port: connections that were not closed."""
    descriptors = [int(one.name) for one in Path("/dev/fd").iterdir()]
    return [fd for fd in descriptors if _peer_port(fd) == port]


def _peer_port(fd: int) -> int | None:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return None
        end = socket.socket(fileno=fd)
    except OSError:
        # Closed since it was listed, as is the one that listed them.
        return None
    try:
        peer = end.getpeername()
    except OSError:
        # It listens, or is not connected any more.
        return None
    finally:
        end.detach()
    return int(peer[1]) if end.family in (socket.AF_INET, socket.AF_INET6) else None
