"""Release of objects that a finalizer holds, when all of them are deleted at once.

Time, latency of the handlers, processor time and memory come from one trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import at_most_peer, goal
from bench.objects import DELETED_AT_ONCE
from bench.rows.percentiles import percentiles
from bench.rows.row import RoundSize, Row, Trial

_OBJECTS: Final = 2_000
_SHORT: Final = 50


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    released = contender.release(server, size.pick(_OBJECTS, _SHORT))
    figures = {"seconds": released.seconds, **percentiles(released.latencies, 1000)}
    if contender.kind == "knell":
        figures["redis_per_thousand"] = released.redis_seconds / released.objects * 1000
    if released.cpu_seconds is not None:
        figures["cpu_per_thousand"] = released.cpu_seconds / released.objects * 1000
    if released.peak_memory is not None:
        figures["peak_mebibytes"] = released.peak_memory / 2**20
    return figures


RELEASE = Trial("release", measure)


def _latency(part: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        objects = size.pick(_OBJECTS, _SHORT)
        return (
            f"{part} from the delete call to the start of the handler, of {objects:,} objects that are deleted at once"
        )

    return words


_CPU = "from before the first call to a second after none is left"

ROWS = (
    Row(
        id="release",
        what=lambda size: (
            f"{size.pick(_OBJECTS, _SHORT):,} objects of about 4 KB that a finalizer holds are deleted at once, "
            f"{DELETED_AT_ONCE} calls in flight: time from the first call until none is left, each released after its "
            "no-op handler; one process (Knell: both sides), Events and conditions off"
        ),
        unit="s",
        trial=RELEASE,
        figure="seconds",
        better="less",
        goal=goal(at_most_peer(1, "kopf")),
    ),
    Row("release.p50", _latency("median time"), "ms", RELEASE, "p50", "less"),
    Row("release.p99", _latency("99th percentile of the time"), "ms", RELEASE, "p99", "less"),
    Row(
        id="release.cpu",
        what=f"processor time of the process per 1,000 objects, user and system, {_CPU}",
        unit="s per 1,000 objects",
        trial=RELEASE,
        figure="cpu_per_thousand",
        better="less",
        goal=goal(at_most_peer(0.65, "kopf")),
    ),
    Row(
        id="release.redis",
        what=f"processor time of the Redis server per 1,000 objects, {_CPU}; only Knell needs one",
        unit="s per 1,000 objects",
        trial=RELEASE,
        figure="redis_per_thousand",
        better="less",
    ),
    Row(
        id="release.memory",
        what="peak resident memory of the process and its children over the same run",
        unit="MiB",
        trial=RELEASE,
        figure="peak_mebibytes",
        better="less",
        goal=goal(at_most_peer(1.1, "kopf")),
    ),
)
