"""The bare loop: one watch, one patch that adds a finalizer, and one that takes it off after a no-op handler.

Nothing is checked, repeated or remembered, so whatever does more has to cost more.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from typing import Final

import aiohttp
import msgspec

from bench.order import TOKEN_VARIABLE, WatchOrder
from bench.peers.loops import fastest_loop
from bench.peers.starts import Starts
from bench.peers.tally import answer

FINALIZER: Final = "bench.knell.dev/bare"
AT_ONCE: Final = 64
ADD: Final = msgspec.json.encode({"metadata": {"finalizers": [FINALIZER]}})
REMOVE: Final = msgspec.json.encode({"metadata": {"finalizers": None}})


class Meta(msgspec.Struct):
    name: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    deletion_timestamp: str = msgspec.field(default="", name="deletionTimestamp")
    finalizers: list[str] = []


class Thing(msgspec.Struct):
    metadata: Meta


class Change(msgspec.Struct):
    type: str
    object: Thing


async def noop(starts: Starts, name: str) -> None:
    starts.began(name)


class Loop:
    def __init__(self, session: aiohttp.ClientSession, order: WatchOrder, starts: Starts) -> None:
        self._session, self._starts = session, starts
        self._path = f"/apis/{order.group}/{order.version}/namespaces/{order.namespace}/{order.plural}"
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        async with self._session.get(self._path) as response:
            version = msgspec.json.decode(await response.read(), type=Thing).metadata.resource_version
        decode = msgspec.json.Decoder(Change).decode
        query = {"watch": "1", "resourceVersion": version}
        async with self._session.get(self._path, params=query) as response, asyncio.TaskGroup() as group:
            answer(ready=True)
            async for line in response.content:
                change = decode(line)
                if change.type == "DELETED":
                    continue
                meta = change.object.metadata
                if meta.deletion_timestamp and FINALIZER in meta.finalizers:
                    group.create_task(self._let_go(meta.name))
                elif not meta.deletion_timestamp and FINALIZER not in meta.finalizers:
                    group.create_task(self._patch(meta.name, ADD))

    async def _let_go(self, name: str) -> None:
        await noop(self._starts, name)
        await self._patch(name, REMOVE)

    async def _patch(self, name: str, body: bytes) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        async with (
            self._slots,
            self._session.patch(f"{self._path}/{name}", data=body, headers=headers) as response,
        ):
            await response.read()
            response.raise_for_status()


async def main(order: WatchOrder) -> None:
    secure = ssl.create_default_context(cafile=order.ca) if order.ca else True
    async with aiohttp.ClientSession(
        order.url,
        connector=aiohttp.TCPConnector(limit=0, ssl=secure),
        headers={"Authorization": f"Bearer {os.environ[TOKEN_VARIABLE]}"},
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        await Loop(session, order, Starts()).run()


if __name__ == "__main__":
    fastest_loop()(main(WatchOrder.decode(sys.argv[1])))
