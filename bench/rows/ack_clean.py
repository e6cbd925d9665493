"""How well one process uses the quota of Cloud Control to remove what a thousand deleted objects of ACK left behind.

The account is the stand-in under the token bucket that was measured: all calls share it, so that it decides how fast it
can be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender
from bench.goals import at_least, below, goal
from bench.rows.row import RoundSize, Row, Trial
from standins.aws import AwsBehaviour
from standins.aws.throttling import CLOUD_CONTROL

_FULL: Final = 1000
_SHORT: Final = 300


def _measured(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    removed = contender.remove(server, size.pick(_FULL, _SHORT))
    figures = {"seconds": removed.seconds}
    if removed.used is not None:
        figures["used"] = 100 * removed.used
    if removed.calls:
        figures["calls"] = removed.calls / removed.resources
        figures["refused"] = 100 * (removed.refused or 0) / removed.calls
    return figures


ACK_CLEAN: Final = Trial("ack-clean", _measured, most_rounds=1, kinds=("knell", "limit"))


def _time(size: RoundSize) -> str:
    half = size.pick(_FULL, _SHORT) // 2
    capacity, rate = CLOUD_CONTROL
    return (
        f"{half} DynamoDB tables and {half} SQS queues that ACK left behind, removed by Cloud Control, which grants "
        f"{rate:g} calls a second after a burst of {capacity:g} and takes {AwsBehaviour().cloud_control_takes:g} s for "
        "a deletion: time from the first deletion of an object to the answer that proves the last resource gone"
    )


ROWS = (
    Row("ack-clean", _time, "s", ACK_CLEAN, "seconds", "less"),
    Row(
        "ack-clean.used",
        "part of Cloud Control's quota that was used, of a full bucket and all that flowed in from the first call to "
        "the last deletion that it let through, in the same run; AWS documents no quota, so that the settings declare "
        "the one that there is",
        "%",
        ACK_CLEAN,
        "used",
        "more",
        goal(at_least(95, "%")),
    ),
    Row(
        "ack-clean.refused",
        "part of the calls that Cloud Control throttled, in the same run",
        "%",
        ACK_CLEAN,
        "refused",
        "less",
        goal(below(0.5, "%")),
    ),
    Row(
        "ack-clean.calls",
        "calls to Cloud Control per resource in the same run: a read of its tags, the deletion, checks of the request "
        "and the read that proves absence",
        "calls per resource",
        ACK_CLEAN,
        "calls",
        "less",
    ),
)
