"""How much of a shared quota four workers use while a second client draws on it unseen, and how often they are
refused.

The run is the scenario of the tests at full size: a bucket of 1,000 per 300 s with time thirty times as fast. What is
learned about a quota that is not the declared one is measured without a second client and in real time, because the
stretches after which more is tried are real time, too.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, ContenderFailedError, NotSupportedError
from bench.goals import at_least, below, goal
from bench.rows.row import Measure, RoundSize, Row, Trial
from tests.scenarios.quota_evidence import QuotaEvidence
from tests.scenarios.quota_run import FULL, WORKERS, QuotaRunNotDrained, QuotaRunSize, run
from tests.scenarios.workers import WorkerFailed
from tests.simulated import Quota

_SHORT = replace(FULL, jobs=1500, quota=Quota(capacity=300, per=timedelta(seconds=90)))
_LEARNS = "{deletes: {learns: true}}"

_MINUTE = 60
_DECLARED = Quota(capacity=100, per=timedelta(seconds=5))
_THRICE = Quota(capacity=300, per=timedelta(seconds=5))
# What flows in at the declared rate in 0.75 s, as on AWS.
_SPARE = 15
# As AWS does it: an answer tells nothing of what is left, a refusal names no time.
_LEARNED = replace(
    FULL,
    headers=False,
    scale=1.0,
    drawn_share=0.0,
    pause=timedelta(0),
    limits="{deletes: {capacity: 100, rate: 20, learns: true}}",
)


def _measured(*, headers: bool) -> Measure:
    def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
        chosen = replace(size.pick(FULL, _SHORT), headers=headers, limits=_LEARNS)
        evidence = _evidence(contender, server, chosen)
        return {"used": 100 * evidence.used_share, "throttled": 100 * evidence.throttled_share}

    return measure


def _learned(quota: Quota, jobs: int, short: int) -> Measure:
    def measure(contender: Contender, server: BenchServer, size: RoundSize) -> Mapping[str, float]:
        spare = _SPARE / quota.capacity
        chosen = replace(_LEARNED, quota=quota, jobs=size.pick(jobs, short), spare=spare)
        evidence = _evidence(contender, server, chosen)
        used, throttled = evidence.used_share_after(_MINUTE), evidence.throttled_share
        return {"used": 100 * used, "throttled": 100 * throttled}

    return measure


def _evidence(contender: Contender, server: BenchServer, chosen: QuotaRunSize) -> QuotaEvidence:
    if contender.kind != "knell":
        raise NotSupportedError("has no budget that its workers share and a provider's answers correct")
    with tempfile.TemporaryDirectory(prefix="knell-bench-") as directory:
        try:
            return asyncio.run(run(chosen, server.port, Path(directory)))
        except (QuotaRunNotDrained, WorkerFailed) as failure:
            raise ContenderFailedError(str(failure)) from failure


QUOTA = Trial("quota", _measured(headers=True))
BLIND = Trial("quota.blind", _measured(headers=False))
LEARNED = Trial("quota.learned", _learned(_THRICE, 9000, 4500), most_rounds=1)
LEARNED_DECLARED = Trial("quota.learned.declared", _learned(_DECLARED, 3000, 1500), most_rounds=1)


def _used(tells: str) -> Callable[[RoundSize], str]:
    def words(size: RoundSize) -> str:
        chosen = size.pick(FULL, _SHORT)
        quota = f"{chosen.quota.capacity:,g} per {chosen.quota.per.total_seconds():g} s"
        return (
            "part of the quota that was used, of a full bucket and all that flowed in, less what a second client took "
            f"unseen ({chosen.drawn_share:.0%} of the refill); {WORKERS} worker processes, {chosen.jobs:,} jobs, "
            f"{quota}, time x {chosen.scale:g}; {tells}"
        )

    return words


_HEADER = "answers carry a remaining-quota header"
_BLIND = "only refusals tell"
_AFTER = (
    "part of what flows into the quota that was used from a minute after the first call on; "
    f"{WORKERS} worker processes, {_DECLARED.capacity:g} per {_DECLARED.per.total_seconds():g} s are declared, "
    f"{_BLIND}, in real time; the provider grants"
)
_THROTTLED = "calls that the provider refused for want of quota, in the same run"

ROWS = (
    Row(
        id="quota.used",
        what=_used(_HEADER),
        unit="%",
        trial=QUOTA,
        figure="used",
        better="more",
        goal=goal(at_least(97, "%")),
    ),
    Row(
        id="quota.throttled",
        what=f"{_THROTTLED}; {_HEADER}",
        unit="%",
        trial=QUOTA,
        figure="throttled",
        better="less",
        goal=goal(below(0.5, "%")),
    ),
    Row("quota.blind.used", _used(_BLIND), "%", BLIND, "used", "more"),
    Row("quota.blind.throttled", f"{_THROTTLED}; {_BLIND}", "%", BLIND, "throttled", "less"),
    Row(
        id="quota.learned.used",
        what=f"{_AFTER} three times as much",
        unit="%",
        trial=LEARNED,
        figure="used",
        better="more",
        goal=goal(at_least(90, "%")),
    ),
    Row(
        id="quota.learned.throttled",
        what=f"{_THROTTLED}; the provider grants three times what is declared",
        unit="%",
        trial=LEARNED,
        figure="throttled",
        better="less",
        goal=goal(below(0.5, "%")),
    ),
    Row(
        id="quota.learned.declared.used",
        what=f"{_AFTER} just that",
        unit="%",
        trial=LEARNED_DECLARED,
        figure="used",
        better="more",
        goal=goal(at_least(97, "%")),
    ),
    Row(
        id="quota.learned.declared.throttled",
        what=f"{_THROTTLED}; the provider grants what is declared",
        unit="%",
        trial=LEARNED_DECLARED,
        figure="throttled",
        better="less",
        goal=goal(below(0.5, "%")),
    ),
)
