"""Workers and the server are killed during work: nothing is lost, repeated without need, or changed that should stay.
Judged by the provider's own log, the times of the kills, and the audit."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.scenarios.crash_run import CrashRun, CrashRunSize

pytestmark = pytest.mark.long


# Scenarios start many processes: they run one after the other, in one of the test processes.
def test_kills_of_workers_and_server_lose_nothing_and_repeat_only_what_was_in_flight(tmp_path: Path) -> None:
    _survive(CrashRunSize(deletions=60, worker_kills=4, server_kills=1, patience=timedelta(minutes=20)), tmp_path)


def test_thirty_kills_of_workers_and_three_of_the_server_lose_nothing_of_ten_thousand_jobs(tmp_path: Path) -> None:
    size = CrashRunSize(deletions=1000, worker_kills=32, server_kills=3, patience=timedelta(minutes=20), foreign=5)
    _survive(size, tmp_path)


def _survive(size: CrashRunSize, directory: Path) -> None:
    evidence = CrashRun(size, directory).run()
    assert evidence.complaints() == []
    # The kills hit workers at work.
    assert len(evidence.worker_kills) >= size.worker_kills
    assert len(evidence.server_kills) == size.server_kills
    assert evidence.kills_in_action() >= 0.8 * size.worker_kills
    assert evidence.hits() >= size.worker_kills
