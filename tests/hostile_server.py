"""HTTP server whose responses try to exhaust the memory of the client, on a free local port."""

import struct
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Literal

from aiohttp import web

MEBIBYTE = 1024 * 1024
UNPACKED = 400 * MEBIBYTE
Body = Literal["bomb", "endless", "announced"] | bytes
"""A small compressed body of a large one; chunks without an end; a length beyond measure, then bytes; or just these."""


@cache
def bomb() -> bytes:
    """Valid gzip: one packed block, again and again, between the header and the checksum of it all."""
    block, times, checksum = b" " * MEBIBYTE, UNPACKED // MEBIBYTE, 0
    for _ in range(times):
        checksum = zlib.crc32(block, checksum)
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    header = b"\x1f\x8b\x08" + bytes(7)
    return header + packed * times + packer.flush() + struct.pack("<LL", checksum, UNPACKED)


class HostileServer:
    """Answers every request with `body` and `status`, but for one for a token, which has what it asks for."""

    def __init__(self) -> None:
        self.body: Body = "endless"
        self.status = 200
        self.content_type = "application/json"
        self.good_tokens = True
        self.url = ""
        self.asked: list[web.BaseRequest] = []

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        if request.path == "/token" and self.good_tokens:
            return web.json_response({"access_token": "t", "expires_on": "4102444800", "resource": "r"})
        self.asked.append(request)
        headers = {"Content-Type": self.content_type, "x-amzn-RequestId": "1"}
        if self.body == "bomb":
            return web.Response(status=self.status, body=bomb(), headers=headers | {"Content-Encoding": "gzip"})
        if isinstance(self.body, bytes):
            return web.Response(status=self.status, body=self.body, headers=headers)
        if self.body == "announced":
            headers["Content-Length"] = str(1 << 40)
        answer = web.StreamResponse(status=self.status, headers=headers)
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 65536)


@asynccontextmanager
async def hostile_server() -> AsyncIterator[HostileServer]:
    hostile = HostileServer()
    runner = web.ServerRunner(web.Server(hostile.serve, access_log=None, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hostile.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hostile
    finally:
        await runner.cleanup()


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    """What is allocated here never takes more bytes than that at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak / MEBIBYTE:.0f} MiB were allocated at once"
