"""The taskiq producer and worker of the bench, on its Redis stream broker; run only inside the Python peers'
environment.

Settings: no result backend, parameters not validated again, its default of messages read at once, uvloop.
"""
# mypy: ignore-errors

import asyncio
import sys
import time

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.order import Order
from bench.peers.tally import Tally, answer

CHUNK = 100


def broker_and_task(order: Order, tally: Tally | None):
    # The group is made by whoever comes first, and must see what was put in before the worker came.
    broker = RedisStreamBroker(url=order.url, consumer_id="0")

    @broker.task(task_name="noop")
    async def noop(fields):
        tally.ran()

    return broker, noop


async def put(order: Order) -> None:
    broker, noop = broker_and_task(order, None)
    await broker.startup()
    started = time.perf_counter()
    for at in range(0, order.jobs, CHUNK):
        await asyncio.gather(*(noop.kiq(order.fields) for _ in range(min(CHUNK, order.jobs - at))))
    answer(seconds=time.perf_counter() - started)
    await broker.shutdown()


async def work(order: Order) -> None:
    broker, _ = broker_and_task(order, Tally(order))
    await run_receiver_task(broker, run_startup=True, validate_params=False, max_async_tasks=order.concurrency)


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    uvloop.run(put(mission) if mission.task == "enqueue" else work(mission))
