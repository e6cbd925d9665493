"""How much of a shared quota four workers use while a second client draws on it unseen, and how often they are
refused.

The run is the scenario of the tests at full size: a bucket of 1,000 per 300 s with time thirty times as fast.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bench.arena import Arena
from bench.contenders.protocol import Contender, ContenderFailedError, NotSupportedError
from bench.goals import at_least, below, goal
from bench.rows.row import Measure, Row, Size, Trial
from service.local.provider import Quota
from tests.scenarios.quota_run import FULL, WORKERS, NotDrained, run
from tests.scenarios.workers import WorkerFailed

_SHORT = replace(FULL, jobs=1500, quota=Quota(capacity=300, per=timedelta(seconds=90)))


def _measured(*, headers: bool) -> Measure:
    def measure(contender: Contender, arena: Arena, size: Size) -> Mapping[str, float]:
        if contender.kind != "knell":
            raise NotSupportedError("has no budget that its workers share and a provider's answers correct")
        chosen = replace(size.pick(FULL, _SHORT), headers=headers)
        with tempfile.TemporaryDirectory(prefix="knell-bench-") as directory:
            try:
                evidence = asyncio.run(run(chosen, arena.port, Path(directory)))
            except (NotDrained, WorkerFailed) as failure:
                raise ContenderFailedError(str(failure)) from failure
        return {"used": 100 * evidence.used_share, "throttled": 100 * evidence.throttled_share}

    return measure


QUOTA = Trial("quota", _measured(headers=True))
BLIND = Trial("quota.blind", _measured(headers=False))


def _used(tells: str) -> Callable[[Size], str]:
    def words(size: Size) -> str:
        chosen = size.pick(FULL, _SHORT)
        quota = f"{chosen.quota.capacity:,g} per {chosen.quota.per.total_seconds():g} s"
        return (
            "part of the quota that was used, of a full bucket and all that flowed in, less what a second client took "
            f"unseen ({chosen.eaten:.0%} of the refill); {WORKERS} worker processes, {chosen.jobs:,} jobs, {quota}, "
            f"time x {chosen.scale:g}; {tells}"
        )

    return words


_HEADER = "answers carry a remaining-quota header"
_BLIND = "only refusals tell"
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
)
