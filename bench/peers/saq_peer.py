"""The SAQ producer and worker of the bench; run only inside the environment of the Python peers.

Fast settings its documentation offers: finished jobs are not kept, uvloop, hiredis.
"""
# mypy: ignore-errors

import asyncio
import sys
import time

import uvloop
from saq import Job, Queue, Worker

from bench.order import Order
from bench.peers.tally import Tally, answer

CHUNK = 100
KEEP_NOTHING = -1


async def put(order: Order) -> None:
    queue = Queue.from_url(order.url)
    dues = order.due_times() if order.task == "schedule" else [None] * order.jobs
    started = time.perf_counter()
    # SAQ has no bulk call that does not wait for results; it limits itself to 20 operations at once.
    for at in range(0, order.jobs, CHUNK):
        await asyncio.gather(
            *(
                queue.enqueue(
                    Job(
                        "noop",
                        kwargs={"fields": order.fields, "due": due},
                        ttl=KEEP_NOTHING,
                        scheduled=due or 0,
                    )
                )
                for due in dues[at : at + CHUNK]
            )
        )
    answer(seconds=time.perf_counter() - started)
    await queue.disconnect()


async def work(order: Order) -> None:
    tally = Tally(order)

    async def noop(ctx, *, fields, due):
        tally.ran(due)

    queue = Queue.from_url(order.url)
    await Worker(queue, functions=[("noop", noop)], concurrency=order.concurrency).start()


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    uvloop.run(put(mission) if mission.task in ("enqueue", "schedule") else work(mission))
