"""A small HTTP/1.1 server for the few pages that probes and scrapes read, one request on each connection.
A general one adds 10 MiB to every process. Whatever a client sends or leaves out, it holds nothing here for long."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import structlog

log = structlog.get_logger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
LONGEST_HEAD: Final = 16 * 1024
_REQUEST: Final = re.compile(rb"([!#-'*+.0-9A-Z^-z|~-]+) ([!-~]+) HTTP/1\.[01]\r?\n")
_METHODS: Final = ("GET", "HEAD")
_MUCH: Final = 64 * 1024


class Limits(NamedTuple):
    """`head` is for a client to say what it wants, `whole` until it has the answer, `farewell` to hang up then;
    `connections` is how many may be open."""

    head: timedelta = timedelta(seconds=5)
    whole: timedelta = timedelta(seconds=30)
    farewell: timedelta = timedelta(seconds=1)
    connections: int = 100


USUAL: Final = Limits()


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    content_type: str = TEXT


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """`pages` are by path; each is made anew for every request."""

    def __init__(self, pages: Mapping[str, Callable[[], Awaitable[Answer]]], limits: Limits = USUAL) -> None:
        self._pages, self._limits = pages, limits
        self._server: asyncio.Server | None = None
        self._stopped = False
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, host: str, port: int) -> int:
        """Answers with the port. Raises OSError where it can't be had."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=LONGEST_HEAD)
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def stop(self) -> None:
        """At once: whoever waits for an answer asks again elsewhere."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
        tasks, writers = list(self._open), list(self._open.values())
        for task, writer in zip(tasks, writers, strict=True):
            task.cancel()
            # A task that had not begun yet closes nothing.
            writer.transport.abort()
        await asyncio.gather(*tasks, *(writer.wait_closed() for writer in writers), return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopped:
            writer.transport.abort()
            return
        if len(self._open) >= self._limits.connections:
            # The oldest gives way, not the newcomer: else clients that only sit there would shut out the probes, and
            # a process that does its work would be killed for dead.
            for task in self._open:
                if not task.cancelling():
                    task.cancel()
                    break
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.whole.total_seconds()):
                # `drain` returns when all of it is with the system, not only most of it.
                writer.transport.set_write_buffer_limits(0)
                writer.write(await self._answered(reader))
                await writer.drain()
            if not writer.is_closing():
                writer.write_eof()
            # Closed with something unread, the connection would be reset, and the answer lost on its way.
            async with asyncio.timeout(self._limits.farewell.total_seconds()):
                while await reader.read(_MUCH):
                    pass
        except (OSError, EOFError):
            # It went away, or took too long (TimeoutError is an OSError): there is nobody to tell.
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        method = ""
        try:
            method, path = await self._asked(reader)
            page = self._pages.get(path)
            if page is None:
                raise _Refused(HTTPStatus.NOT_FOUND)
            if method not in _METHODS:
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
            answer = await self._made(path, page)
        except _Refused as refused:
            answer = _spelt(refused.status)
        return _head(answer) if method == "HEAD" else _head(answer) + answer.body

    async def _made(self, path: str, page: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await page()
        except Exception:
            log.exception("a page could not be made", path=path)
            return _spelt(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[str, str]:
        """Method and path. No page depends on a header, so these are only seen through."""
        try:
            async with asyncio.timeout(self._limits.head.total_seconds()):
                line = await reader.readuntil(b"\n")
                asked = _REQUEST.fullmatch(line)
                if asked is None:
                    raise _Refused(HTTPStatus.BAD_REQUEST)
                left = LONGEST_HEAD - len(line)
                while (line := await reader.readuntil(b"\n")) not in (b"\r\n", b"\n"):
                    left -= len(line)
                    if left < 0:
                        raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                    if b":" not in line:
                        raise _Refused(HTTPStatus.BAD_REQUEST)
            return asked[1].decode("ascii"), urlsplit(asked[2].decode("ascii")).path
        except TimeoutError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT) from None
        except asyncio.LimitOverrunError:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        except ValueError:
            raise _Refused(HTTPStatus.BAD_REQUEST) from None


def _spelt(status: HTTPStatus) -> Answer:
    return Answer(f"{status.value}: {status.phrase}".encode(), status.value)


def _head(answer: Answer) -> bytes:
    status = HTTPStatus(answer.status)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(_METHODS)}")
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii")
