"""The dramatiq producer and worker of the bench; run only inside the environment of the Python peers.

It works with threads: the order's concurrency is their number.
"""
# mypy: ignore-errors

import signal
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.order import Order
from bench.peers.tally import Tally, answer


def actor(order: Order, tally: Tally | None):
    broker = RedisBroker(url=order.url)
    dramatiq.set_broker(broker)

    @dramatiq.actor(actor_name="noop", broker=broker)
    def noop(fields, due):
        tally.ran(due)

    return broker, noop


def put(order: Order) -> None:
    _, noop = actor(order, None)
    dues = order.due_times() if order.task == "schedule" else [None] * order.jobs
    started = time.perf_counter()
    # dramatiq has no bulk call: a group sends its messages one by one as well.
    for due in dues:
        if due is None:
            noop.send(order.fields, None)
        else:
            noop.send_with_options(args=(order.fields, due), delay=max(0, round((due - time.time()) * 1000)))
    answer(seconds=time.perf_counter() - started)


def work(order: Order) -> None:
    broker, _ = actor(order, Tally(order))
    dramatiq.Worker(broker, worker_threads=order.concurrency).start()
    signal.pause()


if __name__ == "__main__":
    mission = Order.decode(sys.argv[1])
    if mission.task in ("enqueue", "schedule"):
        put(mission)
    else:
        work(mission)
