"""How soon an interface goes once the network provider's reservation of it has ended.

The end of a reservation stands in no header, and nothing tells of it: only the refused delete says for how long.
Whether that counts from the refusal or from when the reservation began is not known, so both are measured: where it
began before the first attempt, a wait as long as the message says is late by the time between the two. Nothing that
Azure answers allows a shorter one: the interface was created before it was reserved, its etag has no time, and the
activity log lags by minutes and takes a permission of its own. Should refusals renew the reservation, a delete before
its end would cost all of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from bench.azure_subscription import LATENCY
from bench.bench_server import BenchServer
from bench.contenders.karpenter import OUTWAITED
from bench.contenders.protocol import Contender, Reservations
from bench.goals import below, goal
from bench.rows.percentiles import percentiles
from bench.rows.row import RoundSize, Row, Trial

_FULL: Final = Reservations(interfaces=100, steps=20, within=20, seconds=18)
_SHORT: Final = Reservations(interfaces=20, steps=5, within=5, seconds=6)


_BEGUN: Final = replace(_FULL, renews=False)
_SHORT_BEGUN: Final = replace(_SHORT, renews=False)


def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    return percentiles(contender.outwait(server, size.pick(_FULL, _SHORT)))


def measure_begun(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
    return percentiles(contender.outwait(server, size.pick(_BEGUN, _SHORT_BEGUN)))


RESERVATION = Trial("azure-reservation", measure, most_rounds=1)
BEGUN = Trial("azure-reservation.begun", measure_begun, most_rounds=1)


def _late(part: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        given = size.pick(_FULL, _SHORT)
        return (
            f"{part} time from the end of a reservation to the interface gone, of {given.interfaces} interfaces that "
            f"come without a node within {given.within:g} s; messages say {given.seconds:g} seconds, which each "
            f"refused delete has begin anew; a call takes {LATENCY:g} s, a delete goes at once, and all quotas are "
            f"Azure's; for the peer time is {OUTWAITED:g} times as fast, and its figure in that time"
        )

    return words


def _begun(size: RoundSize) -> str:
    given = size.pick(_BEGUN, _SHORT_BEGUN)
    return (
        f"median time from the end of a reservation to the interface gone, of {given.interfaces} interfaces whose "
        f"reservation of {given.seconds:g} s began when they were made, before the first attempt, and is not renewed "
        f"by a refused delete; all else as for azure-reservation.p50"
    )


ROWS = (
    Row("azure-reservation.p50", _late("median"), "s", RESERVATION, "p50", "less"),
    Row(
        "azure-reservation.p99", _late("99th percentile of the"), "s", RESERVATION, "p99", "less", goal(below(2, "s"))
    ),
    Row("azure-reservation.begun", _begun, "s", BEGUN, "p50", "less"),
)  # fmt: skip
