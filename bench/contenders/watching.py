"""Steps that measure a contender which watches objects: the harness makes and deletes them, its process releases them.

The same for all of them, Knell included; they differ only in the process that is started."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.program import Program, running
from bench.contenders.protocol import ContenderFailedError, Kind, NotSupportedError, Released
from bench.contenders.unsupported import UnsupportedContender
from bench.objects import GROUP, THINGS, VERSION, WATCHED, TookTooLongError
from bench.order import TOKEN_VARIABLE, WatchOrder, WatchTask

_READY_WITHIN: Final = 60.0
_HELD_WITHIN: Final = 180.0
_RELEASED_WITHIN: Final = 180.0
_LISTED_WITHIN: Final = 600.0
_SEEN_WITHIN: Final = 30.0
_ENDED_WITHIN: Final = 60.0
_AFTERMATH: Final = 1.0
"""Seconds in which what follows the last release is still counted."""


def release(
    name: str, command: Sequence[str], environment: Mapping[str, str], server: BenchServer, objects: int
) -> Released:
    cluster = server.cluster
    namespace = cluster.namespace()
    with _process(name, command, environment, _order(server, "release", namespace, THINGS, objects), server) as program:
        program.answer(_READY_WITHIN)
        cluster.fill(namespace, objects)
        try:
            cluster.wait_until_held(namespace, objects, _HELD_WITHIN, program.check)
            before, redis_before = program.cpu_seconds, server.cpu_seconds
            deleted = cluster.delete_all(namespace, objects, _RELEASED_WITHIN, program.check)
        except TookTooLongError as failure:
            raise ContenderFailedError(f"{name}: {failure}") from failure
        time.sleep(_AFTERMATH)
        after, redis_after, peak = program.cpu_seconds, server.cpu_seconds, program.peak_memory
        program.ask_to_tell()
        starts: dict[str, float] = program.answer(_READY_WITHIN)["starts"]
    unhandled = deleted.calls.keys() - starts.keys()
    if unhandled:
        raise ContenderFailedError(f"{name} released {len(unhandled)} objects without their handler")
    return Released(
        objects=objects,
        seconds=deleted.seconds,
        latencies=[starts[one] - called for one, called in deleted.calls.items()],
        cpu_seconds=None if before is None or after is None else after - before,
        redis_seconds=redis_after - redis_before,
        peak_memory=peak,
    )


def take_over(
    name: str,
    command: Sequence[str],
    server: BenchServer,
    *,
    in_order: bool,
    prepare_namespace: Callable[[str], None] = lambda namespace: None,
) -> float:
    """`prepare_namespace` makes what the replicas need in their namespace."""
    cluster = server.cluster
    namespace = cluster.namespace()
    prepare_namespace(namespace)
    lead, stand_by = (_order(server, task, namespace, THINGS, 1) for task in ("lead", "stand-by"))
    with _process(name, command, {}, lead, server) as first:
        first.answer(_READY_WITHIN)
        cluster.fill(namespace, 1)
        try:
            cluster.wait_until_held(namespace, 1, _HELD_WITHIN, first.check)
            with _process(name, command, {}, stand_by, server) as other:
                other.answer(_READY_WITHIN)
                ended = time.time()
                first.end(signal.SIGTERM if in_order else signal.SIGKILL, _ENDED_WITHIN)
                cluster.delete_all(namespace, 1, _RELEASED_WITHIN, other.check)
                other.ask_to_tell()
                starts: dict[str, float] = other.answer(_READY_WITHIN)["starts"]
        except TookTooLongError as failure:
            raise ContenderFailedError(f"{name}: {failure}") from failure
    if not starts:
        raise ContenderFailedError(f"{name} released the object without its handler")
    return min(starts.values()) - ended


def watch(
    name: str, command: Sequence[str], environment: Mapping[str, str], server: BenchServer, objects: int
) -> int | None:
    cluster = server.cluster
    cluster.create_watched(objects)
    order = _order(server, "watch", cluster.namespace(), WATCHED, objects)
    with _process(name, command, environment, order, server) as program:
        listed = program.answer(_LISTED_WITHIN)["listed"]
        if listed != objects:
            raise ContenderFailedError(f"{name} listed {listed} objects, and not {objects}")
        # Whoever sees the change is watching.
        cluster.touch_watched()
        program.answer(_SEEN_WITHIN)
        return program.peak_memory


def _order(server: BenchServer, task: WatchTask, namespace: str, plural: str, objects: int) -> WatchOrder:
    cluster = server.cluster
    return WatchOrder(
        task=task,
        url=cluster.url,
        ca=cluster.ca,
        kubeconfig=str(cluster.kubeconfig),
        namespace=namespace,
        group=GROUP,
        version=VERSION,
        plural=plural,
        objects=objects,
        port=server.port,
    )


def _process(
    name: str, command: Sequence[str], environment: Mapping[str, str], order: WatchOrder, server: BenchServer
) -> AbstractContextManager[Program]:
    token = {TOKEN_VARIABLE: server.cluster.token}
    return running(name, [*command, order.encode()], {**environment, **token}, listens=True)


class WatchingContender(UnsupportedContender):
    """A contender that knows no jobs. Subclasses say what to run, and what they take part in."""

    kind: Kind = "watcher"
    no_jobs = "has no jobs, only objects that it watches"
    cannot_release: str | None = None
    cannot_take_over: str | None = None
    cannot_watch: str | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def release(self, server: BenchServer, objects: int) -> Released:
        if self.cannot_release is not None:
            raise NotSupportedError(self.cannot_release)
        return release(self.name, self.command(), {}, server, objects)

    def take_over(self, server: BenchServer, *, in_order: bool) -> float:
        reason = self.cannot_release or self.cannot_take_over
        if reason is not None:
            raise NotSupportedError(reason)
        return take_over(self.name, self.command(), server, in_order=in_order)

    def watch(self, server: BenchServer, objects: int) -> int | None:
        if self.cannot_watch is not None:
            raise NotSupportedError(self.cannot_watch)
        return watch(self.name, self.command(), {}, server, objects)
