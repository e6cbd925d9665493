"""The streaQ producer and worker of the bench; run only inside the environment of the Python peers.

Fast settings its documentation offers: bulk enqueueing, silent tasks, no results kept, uvloop.
"""
# mypy: ignore-errors

import sys
import time
from datetime import UTC, datetime

import anyio
from streaq import Worker

from bench.order import Order
from bench.peers.tally import Tally, answer

CHUNK = 500


def worker_and_task(order: Order, tally: Tally | None):
    worker = Worker(redis_url=order.url, concurrency=order.concurrency, anyio_kwargs={"use_uvloop": True})

    @worker.task(name="noop", silent=True, ttl=0)
    async def noop(fields, due):
        tally.ran(due)

    return worker, noop


async def put(order: Order) -> None:
    worker, noop = worker_and_task(order, None)
    dues = order.due_times() if order.task == "schedule" else [None] * order.jobs
    async with worker:
        started = time.perf_counter()
        for at in range(0, order.jobs, CHUNK):
            tasks = []
            for due in dues[at : at + CHUNK]:
                task = noop.enqueue(order.fields, due)
                if due is not None:
                    task.start(schedule=datetime.fromtimestamp(due, UTC))
                tasks.append(task)
            await worker.enqueue_many(tasks)
        answer(seconds=time.perf_counter() - started)


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    if mission.task in ("enqueue", "schedule"):
        anyio.run(put, mission, backend_options={"use_uvloop": True})
    else:
        worker_and_task(mission, Tally(mission))[0].run_sync()
