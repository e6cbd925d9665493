"""Four worker processes and a second client on one quota: no worker calls during a pause, or too early after it.
The used share of the quota is no criterion here; the bench reports it."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from standins.redis_servers import LocalRedis
from tests.scenarios.quota_run import FULL, QuotaRunSize, run
from tests.simulated import Quota

pytestmark = pytest.mark.long

# Two seconds of ours: long enough that a call during a pause can't be one that was sent before it.
PAUSE = timedelta(seconds=60)
# One after the other, in the same test process as the crash scenario: both start many processes.
SHORT = replace(
    FULL,
    jobs=1000,
    quota=Quota(capacity=300, per=timedelta(seconds=90)),
    patience=timedelta(seconds=90),
)


async def test_with_remaining_tokens_in_responses_no_worker_calls_during_a_pause_or_early(tmp_path: Path) -> None:
    await _respect(replace(SHORT, headers=True, bursts=2), tmp_path)


async def test_with_refusals_alone_no_worker_calls_during_a_pause_or_early(tmp_path: Path) -> None:
    await _respect(replace(SHORT, headers=False, bursts=1), tmp_path)


async def test_at_full_size_with_remaining_tokens_in_responses_pauses_are_kept(tmp_path: Path) -> None:
    await _respect(replace(FULL, headers=True, bursts=3), tmp_path)


async def test_at_full_size_with_refusals_alone_pauses_are_kept(tmp_path: Path) -> None:
    await _respect(replace(FULL, headers=False, bursts=1), tmp_path)


async def _respect(size: QuotaRunSize, directory: Path) -> None:
    with LocalRedis(directory=directory / "server") as server:
        evidence = await run(replace(size, pause=PAUSE), server.port, directory)
    assert evidence.complaints() == []
    assert evidence.pauses(), "no call was refused: the scenario shows nothing"
    removed = Counter(line.id for line in evidence.deletes if line.status == 204)
    assert len(removed) == size.jobs
    assert set(removed.values()) == {1}
