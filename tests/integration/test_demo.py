"""`knell demo` as a newcomer runs it: it shows something at once, ends well, and leaves nothing behind. Its judge is
put to the test as well: a log that shows harm is not called a success."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from service.local.demo import Ledger, invent
from service.local.provider import Line

COMMAND = [sys.executable, "-c", "from service.cli.main import main; main()", "demo"]
SMALL = ["--objects", "8", "--seconds", "10"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    # A server that must never be asked, and a place where leftovers would be seen.
    return {**os.environ, "KNELL_REDIS_URL": "redis://127.0.0.1:1/0", "TMPDIR": str(tmp_path)}


def processes_in(directory: Path) -> list[str]:
    """Command lines of processes that name the directory, or work in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                place = (entry / "cwd").readlink()
            except OSError:
                continue
            if str(directory) in line or place.is_relative_to(directory):
                found.append(line)
    return found


def left_behind(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("knell-*")] + processes_in(directory)


def test_the_demo_ends_well_by_the_provider_s_own_log(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, *SMALL, "--output", "json"], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    told = msgspec.json.decode(done.stdout)
    summary = told["summary"]
    assert told["problems"] == []
    assert summary["deletions"] == summary["released"] == 8
    assert summary["removed"] == summary["resources"] == len(invent(8, timedelta(seconds=10)).ours)
    assert summary["reservations"] == 4
    assert summary["early"] == 0
    assert summary["foreign_touched"] == []
    assert summary["refused_foreign"] >= 1
    assert "kill -9 of worker-1" in done.stderr
    assert not left_behind(tmp_path)


def test_without_a_terminal_plain_lines_come_at_once_and_an_interrupt_cleans_up(
    environment: dict[str, str], tmp_path: Path
) -> None:
    started = time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, *SMALL], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert time.monotonic() - started < 5
        assert "8 objects are going" in first
        for line in process.stdout:
            if "gone " in line:
                break
        else:
            pytest.fail("no progress was shown")
        assert "\x1b[" not in first + line
        assert processes_in(tmp_path)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 1
        assert "interrupted; everything that was started has been stopped" in rest
        assert "Traceback" not in rest
        assert not left_behind(tmp_path)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Log:
    """A provider's log, written by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 1000.0

    def delete(self, name: str, status: int, reserved_until: float | None = None) -> None:
        call = Line(what="request", at=self.clock, arrived=self.clock, method="DELETE", account="a", id=name)
        self._write(msgspec.structs.replace(call, status=status, reserved_until=reserved_until))

    def gone(self, name: str) -> None:
        self._write(Line(what="gone", at=self.clock, account="a", id=name))

    def _write(self, line: Line) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log.jsonl")


def test_what_is_not_gone_is_left_also_when_it_was_accepted(log: Log) -> None:
    log.delete("x", 204)
    log.gone("x")
    log.delete("y", 202)
    ledger = Ledger(log.path, frozenset({"x", "y", "z"}))
    ledger.catch_up()
    assert ledger.left() == ["y", "z"]
    log.gone("y")
    ledger.catch_up()
    assert ledger.left() == ["z"]
    assert ledger.removed == 2


def test_a_call_for_what_is_not_ours_is_seen(log: Log) -> None:
    log.delete("somebody-s", 409)
    ledger = Ledger(log.path, frozenset({"x"}))
    ledger.catch_up()
    assert ledger.strangers == {"somebody-s"}


def test_a_reservation_is_kept_or_broken_by_the_next_call(log: Log) -> None:
    log.delete("x", 400, reserved_until=1006.0)
    log.delete("y", 400, reserved_until=1006.0)
    log.clock = 1005.0
    log.delete("y", 400, reserved_until=1006.0)
    log.clock = 1006.25
    log.delete("x", 429)
    log.clock = 1006.5
    log.delete("x", 204)
    ledger = Ledger(log.path, frozenset({"x", "y"}))
    ledger.catch_up()
    assert ledger.early == 1
    assert ledger.late == [0.5]
    assert ledger.statuses[429] == 1


def test_only_calls_after_an_accepted_one_are_repeated(log: Log) -> None:
    for status in (500, 409, 202, 202, 404):
        log.delete("x", status)
    ledger = Ledger(log.path, frozenset({"x"}))
    ledger.catch_up()
    assert ledger.repeated == 2
    assert ledger.calls == 5
