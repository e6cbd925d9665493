"""The raw limit: what redis-py itself can do with the same data and no promises beyond the stream's own.

Put in with pipelined XADD; read in batches, decoded with msgspec, one asyncio task per message, acknowledged
in batches.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import msgspec
import redis
import redis.asyncio

from bench.order import Order
from bench.peers.loops import fastest_loop
from bench.peers.tally import Tally, answer

STREAM = "raw:jobs"
GROUP = "workers"
PIPELINE = 500


class Job(msgspec.Struct):
    """The fields of every contender's job; numbers arrive as text and are converted, as in any real
    reader."""

    version: int
    deletion: str
    kind: str
    target: str
    account: str
    region: str
    lane: str
    strategy: str
    stage: int
    object: str


def put(order: Order) -> None:
    with redis.Redis(port=order.port) as client:
        fields: dict[Any, Any] = dict(order.fields)
        started = time.perf_counter()
        for at in range(0, order.jobs, PIPELINE):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(PIPELINE, order.jobs - at)):
                pipeline.xadd(STREAM, fields)
            pipeline.execute()
        answer(seconds=time.perf_counter() - started)


async def work(order: Order) -> None:
    tally = Tally(order)

    async def run(fields: dict[str, str]) -> None:
        msgspec.convert(fields, Job, strict=False)
        tally.ran()

    client = redis.asyncio.Redis(port=order.port, decode_responses=True)
    await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    while True:
        answered: Any = await client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=order.concurrency, block=1000)
        for _, messages in answered:
            async with asyncio.TaskGroup() as group:
                for _, fields in messages:
                    group.create_task(run(fields))
            await client.xack(STREAM, GROUP, *(message_id for message_id, _ in messages))


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    if mission.task == "enqueue":
        put(mission)
    else:
        fastest_loop()(work(mission))
