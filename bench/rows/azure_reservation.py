"""How soon an interface goes once the network provider's reservation of it has ended.

The end of a reservation stands in no header, and nothing tells of it: only the refused delete says for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bench.arena import Arena
from bench.contenders.karpenter import OUTWAITED
from bench.contenders.protocol import Contender, Reservations
from bench.goals import below, goal
from bench.rows.percentiles import percentiles
from bench.rows.row import Row, Size, Trial
from bench.subscription import LATENCY

_FULL: Final = Reservations(interfaces=100, steps=20, within=20, seconds=18)
_SHORT: Final = Reservations(interfaces=20, steps=5, within=5, seconds=6)


def measure(contender: Contender, arena: Arena, size: Size) -> Mapping[str, float]:
    return percentiles(contender.outwait(arena, size.pick(_FULL, _SHORT)))


RESERVATION = Trial("azure-reservation", measure, most_rounds=1)


def _late(part: str) -> Callable[[Size], str]:
    def words(size: Size) -> str:
        given = size.pick(_FULL, _SHORT)
        return (
            f"{part} time from the end of a reservation to the interface gone, of {given.interfaces} interfaces that "
            f"come without a node within {given.within:g} s; messages say {given.seconds:g} seconds, which each "
            f"refused delete has begin anew; a call takes {LATENCY:g} s, a delete goes at once, and all quotas are "
            f"Azure's; for the peer time is {OUTWAITED:g} times as fast, and its figure in that time"
        )

    return words


ROWS = (
    Row("azure-reservation.p50", _late("median"), "s", RESERVATION, "p50", "less"),
    Row(
        "azure-reservation.p99", _late("99th percentile of the"), "s", RESERVATION, "p99", "less", goal(below(2, "s"))
    ),
)  # fmt: skip
