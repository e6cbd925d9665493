"""How fast, and with how many calls, one process removes interfaces that Karpenter's nodes left on Azure.

The subscription is the stand-in under Azure's own token buckets: they decide how fast it can be done, and what is too
much. Its time is faster than ours, and all figures are in its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from bench.azure_subscription import LATENCY
from bench.bench_server import BenchServer
from bench.contenders.collecting import COLLECTED, ONE_OF, RESERVED_FOR
from bench.contenders.karpenter import NEAR, OWN_CODE
from bench.contenders.protocol import Contender, Orphans
from bench.goals import Clause, Goal, at_least, at_most_limit, below, goal, peer_near
from bench.rows.row import Measure, RoundSize, Row, Trial
from standins.azure import AzureBehaviour

_FULL: Final = 3000
_SHORT: Final = 1000
_SOON: Final = 1.0
_PATIENT: Final = 6.0


def _measured(*, retry_after: float = _SOON, read_quotas: bool = False) -> Measure:
    def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
        collected = contender.collect(server, Orphans(size.pick(_FULL, _SHORT), retry_after, read_quotas))
        figures = {"seconds": collected.seconds}
        if collected.used is not None:
            figures["used"] = 100 * collected.used
        if collected.deletes and collected.calls:
            figures["throttled"] = 100 * (collected.throttled or 0) / collected.deletes
            figures["refused"] = 100 * (collected.refused or 0) / collected.calls
            figures["calls"] = collected.calls / collected.interfaces
        return figures

    return measure


CLEAN = Trial("azure-clean", _measured(), most_rounds=1)
PATIENT = Trial("azure-clean.patient", _measured(retry_after=_PATIENT), most_rounds=1)
READS = Trial("azure-clean.reads", _measured(read_quotas=True), most_rounds=1)


def _time(how: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        return (
            f"{size.pick(_FULL, _SHORT):,} interfaces without a node in one subscription, one of {ONE_OF} reserved for "
            f"{RESERVED_FOR:g} s: time from the first delete to the last interface gone, in the subscription's time, "
            f"which runs {COLLECTED:g} times as fast; a call takes {LATENCY:g} s there and a delete "
            f"{AzureBehaviour().nic_goes:g} s; {how}"
        )

    return words


_AFTER: Final = "Resource Manager's refusals say to wait for {:g} s, and reads are not limited"
_USED = (
    "part of the network provider's quota for deletes that was used, of a full bucket and all that flowed in from the "
    "first delete to the last one that it let through, in the same run"
)
_THROTTLED = "part of the deletes that were answered 429, in the same run"
_REFUSED = "part of all calls that were answered 429, in the same run"
_CALLS = (
    "calls per interface in the same run, with lists and those that follow when the last interface is gone (Knell: the "
    "proofs of absence)"
)


def _checked(known: Callable[[int], float], unit: str, *clauses: Clause) -> Callable[[RoundSize], Goal]:
    """With what the peer's own code was seen to do: where ours does something else, the comparison says nothing."""

    def sized(size: RoundSize) -> Goal:
        there = size.pick(_FULL, _SHORT)
        return goal(*clauses, peer_near("karpenter", known(there), NEAR, unit))

    return sized


def _rows(trial: Trial, how: str, goals: Mapping[str, Goal | Callable[[RoundSize], Goal]]) -> tuple[Row, ...]:
    row = partial(Row, trial=trial)
    return (
        row(trial.name, _time(how), "s", figure="seconds", better="less", goal=goals.get("seconds")),
        row(f"{trial.name}.used", f"{_USED}; {how}", "%", figure="used", better="more", goal=goals.get("used")),
        row(
            f"{trial.name}.throttled", f"{_THROTTLED}; {how}", "%", figure="throttled", better="less",
            goal=goals.get("throttled"),
        ),
        row(f"{trial.name}.calls", f"{_CALLS}; {how}", "calls per interface", figure="calls", better="less"),
    )  # fmt: skip


_IN_TIME: Final = at_most_limit(1.05)
_ENOUGH: Final = at_least(97, "%")
_FEW: Final = below(0.5, "%")
_ALL: Final = "reads, polls and queries are limited, too"

ROWS = (
    *_rows(
        CLEAN,
        _AFTER.format(_SOON),
        {
            "seconds": _checked(lambda there: OWN_CODE[there].seconds, "s", _IN_TIME),
            "used": goal(_ENOUGH),
            "throttled": _checked(lambda there: 100 * OWN_CODE[there].throttled, "%", _FEW),
        },
    ),
    *_rows(
        PATIENT,
        _AFTER.format(_PATIENT),
        {"seconds": goal(_IN_TIME), "used": goal(_ENOUGH), "throttled": goal(_FEW)},
    ),
    *_rows(READS, _ALL, {}),
    Row(f"{READS.name}.refused", f"{_REFUSED}; {_ALL}", "%", READS, "refused", "less"),
)
