"""Latency of DELETE calls while Knell's webhook is asked about each object, against no admission and against the
admission policy, and what the webhook costs.

Figures of one run, in whose rounds the three alternate: what the webhook adds is the difference of their percentiles.
Where 500 a second are more than the machine can do, the wait for a processor is in all of them; at 100 it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, Kind, PacedDeletions
from bench.goals import goal, less_than_above_limit
from bench.rows.percentiles import percentiles
from bench.rows.row import RoundSize, Row, Trial

_KINDS: Final[tuple[Kind, ...]] = ("knell", "limit", "admission")
_DELETIONS: Final = 3_000
_PER_SECOND: Final = 500
_FEW: Final = 600
_FEW_PER_SECOND: Final = 100
_SHORT: Final = 200


def _measure(
    deletions: int, per_second: int, contender: Contender, server: BenchServer, size: RoundSize
) -> Mapping[str, float]:
    count = size.pick(deletions, _SHORT)
    admitted = contender.admit(server, PacedDeletions(count, per_second))
    figures = {**percentiles(admitted.latencies, 1000), "rate": count / admitted.seconds}
    if admitted.cpu_seconds is not None:
        figures["cpu_per_thousand"] = admitted.cpu_seconds / count * 1000
    return figures


ADMISSION = Trial("admission", partial(_measure, _DELETIONS, _PER_SECOND), kinds=_KINDS)
LIGHT = Trial("admission.light", partial(_measure, _FEW, _FEW_PER_SECOND), kinds=_KINDS)


def _latency(part: str, deletions: int, per_second: int) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        return (
            f"{part} of a DELETE call, of {size.pick(deletions, _SHORT):,} objects of about 1 KB in a protected group "
            f"that nothing protects, up to {per_second} a second (Knell: one `knell webhook` is asked about each; "
            "limit: no admission; policy: Knell's admission policy)"
        )

    return words


def _rows(id_: str, trial: Trial, deletions: int, per_second: int) -> tuple[Row, ...]:
    return (
        Row(f"{id_}.p50", _latency("median latency", deletions, per_second), "ms", trial, "p50", "less"),
        Row(
            id=f"{id_}.p99",
            what=_latency("99th percentile of the latency", deletions, per_second),
            unit="ms",
            trial=trial,
            figure="p99",
            better="less",
            goal=goal(less_than_above_limit(5, "ms")),
        ),
    )


ROWS = (
    *_rows("admission", ADMISSION, _DELETIONS, _PER_SECOND),
    Row(
        id="admission.rate",
        what=f"deletions a second that came about in the same run, of {_PER_SECOND} that were tried",
        unit="deletions/s",
        trial=ADMISSION,
        figure="rate",
        better="more",
    ),
    Row(
        id="admission.cpu",
        what="processor time of the webhook's process per 1,000 requests in the same run, user and system",
        unit="s per 1,000 requests",
        trial=ADMISSION,
        figure="cpu_per_thousand",
        better="less",
    ),
    *_rows("admission.light", LIGHT, _FEW, _FEW_PER_SECOND),
)
