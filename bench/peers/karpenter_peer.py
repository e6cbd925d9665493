"""The collection of interfaces of Karpenter's provider for Azure as a program of our own: what it asks, in its order.

A pass lists interfaces and machines through Resource Graph and removes those without one, a hundred at a time: each is
read, deleted and asked after until that is done, and keeps its place meanwhile. What fails is left to the next pass,
300 s after this one has ended. That the NodeClaims are listed, too, is left out: there are none, and it costs no quota.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from bench.order import AzureOrder
from bench.peers.azcore_retries import Answered, AzcoreRetries
from bench.peers.loops import fastest_loop

AT_ONCE: Final = 100
BETWEEN: Final = 300.0
INTERFACES: Final = "Microsoft.Network/networkInterfaces"
MACHINES: Final = "Microsoft.Compute/virtualMachines"
CLUSTER_TAG: Final = "karpenter.azure.com_cluster"
GRAPH: Final = "/providers/Microsoft.ResourceGraph/resources"
GONE: Final = (204, 404)


class DroppedError(Exception):
    """Until the next pass."""


class KarpenterArm:
    """Calls, each tried as often as the SDK does."""

    def __init__(self, session: aiohttp.ClientSession, order: AzureOrder) -> None:
        self._session, self._retries = session, AzcoreRetries(order.scale)
        self._order = order
        self._group = f"/subscriptions/{order.subscription}/resourceGroups/{order.group}/providers"

    async def named(self, kind: str) -> list[str]:
        """All of the cluster's, by Resource Graph."""
        order = self._order
        query = (
            f"Resources | where type =~ '{kind}' | where resourceGroup =~ '{order.group}' "
            f"| where tags['{CLUSTER_TAG}'] == '{order.cluster}' | project id, name | order by id asc"
        )
        found: list[str] = []
        options: dict[str, Any] = {"resultFormat": "objectArray"}
        while True:
            asked = {"subscriptions": [order.subscription], "query": query, "options": options}
            page = (await self._ask("POST", GRAPH, (200,), asked)).body
            found += [row["name"] for row in page["data"]]
            if "$skipToken" not in page:
                return found
            options = {**options, "$skipToken": page["$skipToken"]}

    async def remove(self, name: str) -> None:
        path = f"{self._group}/{INTERFACES}/{name}"
        if (await self._ask("GET", path, (200, *GONE))).status in GONE:
            return
        answer = await self._ask("DELETE", path, (202, *GONE))
        if answer.status in GONE:
            return
        address = answer.headers["Azure-AsyncOperation"].removeprefix(self._order.address)
        while True:
            await asyncio.sleep(answer.wait or 0.0)
            answer = await self._ask("GET", address, (200,))
            match answer.body["status"]:
                case "Succeeded":
                    return
                case "Failed":
                    raise DroppedError(name)

    async def _ask(self, method: str, path: str, good: tuple[int, ...], body: Any = None) -> Answered:
        answer = await self._retries.of(lambda: self._once(method, path, body))
        if answer.status not in good:
            raise DroppedError(f"{method} {path[:200]} was answered {answer.status}")
        return answer

    async def _once(self, method: str, path: str, body: Any) -> Answered:
        async with self._session.request(method, path, json=body) as response:
            text = await response.read()
            return Answered(response.status, response.headers, await response.json() if text else None)


class Collector:
    """`removed` are those that it knows to be gone."""

    def __init__(self, arm: KarpenterArm, order: AzureOrder) -> None:
        self._arm, self._order = arm, order
        self.removed: set[str] = set()
        self.passes = 0

    async def run(self) -> None:
        """Until it has removed as many as it was told that there are."""
        while True:
            await self.one_pass()
            if len(self.removed) >= self._order.interfaces:
                return
            await asyncio.sleep(BETWEEN / self._order.scale)

    async def one_pass(self) -> None:
        self.passes += 1
        try:
            interfaces = await self._arm.named(INTERFACES)
            machines = set(await self._arm.named(MACHINES))
        except DroppedError:
            return
        left = iter([name for name in interfaces if name not in machines])
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._take(left))

    async def _take(self, left: Iterator[str]) -> None:
        for name in left:
            try:
                await self._arm.remove(name)
            except (DroppedError, aiohttp.ClientError):
                continue
            self.removed.add(name)


@asynccontextmanager
async def collector_of(order: AzureOrder) -> AsyncIterator[Collector]:
    async with aiohttp.ClientSession(
        order.address,
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Authorization": f"Bearer {order.token}"},
        timeout=aiohttp.ClientTimeout(total=60),
    ) as session:
        yield Collector(KarpenterArm(session, order), order)


async def main(order: AzureOrder) -> None:
    async with collector_of(order) as collector:
        await collector.run()


if __name__ == "__main__":
    fastest_loop()(main(AzureOrder.decode(sys.argv[1])))
