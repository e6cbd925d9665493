"""The arq producer and worker of the bench; run only inside arq's own environment.

Fast settings its documentation offers: no result kept, no results logged, uvloop, short polls under load.
"""
# mypy: ignore-errors

import asyncio
import sys
import time
from datetime import UTC, datetime

import uvloop
from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from bench.order import Order
from bench.peers.tally import Tally, answer

CHUNK = 100
# With its defaults a drain is bound by the half second between two polls, not by arq's work. When lateness is
# measured the default stays: a worker that polls a hundred times a second is not how anybody runs an idle
# one.
SETTINGS_UNDER_LOAD = {"poll_delay": 0.01, "queue_read_limit": 2000}


async def put(order: Order) -> None:
    pool = await create_pool(RedisSettings(port=order.port, host="127.0.0.1"))
    dues = order.due_times() if order.task == "schedule" else [None] * order.jobs
    started = time.perf_counter()
    # arq has no bulk call; many at once over its connection pool is the fastest it offers.
    for at in range(0, order.jobs, CHUNK):
        await asyncio.gather(
            *(
                pool.enqueue_job(
                    "noop",
                    order.fields,
                    due,
                    _defer_until=None if due is None else datetime.fromtimestamp(due, UTC),
                )
                for due in dues[at : at + CHUNK]
            )
        )
    answer(seconds=time.perf_counter() - started)
    await pool.aclose()


def work(order: Order) -> None:
    tally = Tally(order)

    async def noop(ctx, fields, due):
        tally.ran(due)

    settings = dict(SETTINGS_UNDER_LOAD) if order.task == "drain" else {}
    Worker(
        functions=[func(noop, name="noop", keep_result=0)],
        redis_settings=RedisSettings(port=order.port, host="127.0.0.1"),
        max_jobs=order.concurrency,
        keep_result=0,
        log_results=False,
        **settings,
    ).run()


if __name__ == "__main__":
    uvloop.install()
    mission = Order.decode(sys.argv[1])
    if mission.task in ("enqueue", "schedule"):
        asyncio.run(put(mission))
    else:
        work(mission)
