"""Imports of long-running processes: nothing that only other commands need."""

import subprocess
import sys

import pytest

# 7 MiB of tables and coloured tracebacks, 40 MiB of models, and what only users of AWS or Azure need.
UNUSED = (
    "aiobotocore",
    "azure",
    "botocore",
    "kubernetes_asyncio",
    "moto",
    "pygments",
    "rich",
    "standins",
)

SDKS = ("aiobotocore", "azure", "botocore")

_COMMAND = """
import click
from service.cli.main import cli
assert cli.get_command(click.Context(cli), {name!r}) is not None
"""
_LOADED = """
import sys
print(*(name for name in {unused!r} if name in sys.modules))
"""


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", ["work", "watch", "run"])
def test_a_long_running_command_imports_nothing_that_it_does_not_use(command: str) -> None:
    assert run(_COMMAND.format(name=command) + _LOADED.format(unused=UNUSED)).split() == []


@pytest.mark.parametrize("command", ["plan", "sweep", "kept", "doctor"])
def test_a_command_imports_no_sdk_before_it_knows_that_a_source_needs_it(command: str) -> None:
    assert run(_COMMAND.format(name=command) + _LOADED.format(unused=SDKS)).split() == []


@pytest.mark.long
@pytest.mark.parametrize("process", ["knell_watching", "knell_process"])
def test_the_bench_measures_processes_that_are_as_lean(process: str) -> None:
    code = f"import bench.contenders.{process}" + _LOADED.format(unused=(*UNUSED, "bench.bench_server"))
    assert run(code).split() == []


def test_a_command_that_draws_tables_has_what_draws_them() -> None:
    drawn = run(_COMMAND.format(name="status") + "from service.cli import output\noutput.show([output.note('drawn')])")
    assert drawn == "drawn\n"


def test_a_traceback_on_a_terminal_is_readable_and_plain() -> None:
    shown = run(
        _COMMAND.format(name="work")
        + """
import structlog
from service.logs import configure
from service.settings import LogSettings
configure(LogSettings(format="console"))
try:
    held = "a-local"
    raise ValueError("it is torn")
except ValueError:
    structlog.get_logger().exception("failed", where="here")
"""
    )
    assert "failed" in shown
    assert "where=here" in shown
    assert "Traceback (most recent call last)" in shown
    assert "ValueError: it is torn" in shown


def test_what_was_imported_before_the_logs_stays_as_it_is() -> None:
    assert run("import rich, sys\nimport service.logs\nprint(sys.modules['rich'] is rich)") == "True\n"
