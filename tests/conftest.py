"""Fixtures that every test may ask for."""

import signal

import pytest

from tests.clusters import api, both_apis, embedded_api, plane, real_api, real_stock, summary
from tests.servers import (
    cluster_server,
    embedded_server,
    redis_server,
    redis_settings,
    sentinel_server,
    server,
)

# Who starts the tests in the background of a script has them ignore SIGINT, and so would every command they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = [
    "api",
    "both_apis",
    "cluster_server",
    "embedded_api",
    "embedded_server",
    "plane",
    "real_api",
    "real_stock",
    "redis_server",
    "redis_settings",
    "sentinel_server",
    "server",
]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A newcomer's run and that of CI may be on different API servers: both say on which."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    used = summary(pair for report in reports for pair in getattr(report, "user_properties", ()))
    if used:
        terminalreporter.write_line(f"Kubernetes API server: {used}")
