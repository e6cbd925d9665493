"""Fixtures for all tests."""

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import structlog
from hypothesis import settings as hypothesis_settings

from service.cli import session
from service.logs import StderrLogger
from tests.api_servers import api, embedded_api, plane, real_api, real_stock, summary
from tests.cloud_standins import local_aws, local_azure
from tests.redis_servers import (
    choose_servers,
    cluster_server,
    embedded_server,
    redis_server,
    redis_settings,
    sentinel_server,
    server,
)
from workers.providers.aws.client import sessions as aws_sessions
from workers.providers.azure import clients as azure_clients

# Tests started in the background of a script ignore SIGINT, and so would every command they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example may take as long as a busy machine needs.
hypothesis_settings.register_profile("knell", deadline=None)
hypothesis_settings.load_profile("knell")

__all__ = [
    "api",
    "cluster_server",
    "embedded_api",
    "embedded_server",
    "local_aws",
    "local_azure",
    "plane",
    "real_api",
    "real_stock",
    "redis_server",
    "redis_settings",
    "sentinel_server",
    "server",
]


@pytest.fixture(scope="session", autouse=True)
def _loggers_follow_the_configuration() -> Iterator[None]:
    """Commands that run inside a test process configure structlog to keep each logger as it was at its first use; the
    logs of later tests could then not be captured. Logs go to stderr, as those of every command, and not to stdout:
    a service in the same process would write between the lines of a command's JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", partial(_uncached, structlog.configure))
        patch.setattr(structlog, "reset_defaults", partial(_reset_to_stderr, structlog.reset_defaults))
        structlog.reset_defaults()
        yield


@pytest.fixture(autouse=True)
def _no_test_logs_as_another_one_configured(_loggers_follow_the_configuration: None) -> None:
    """A command sets the level of its process; events below it could not be captured in later tests."""
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _busy_machines_have_time() -> Iterator[None]:
    """Longer timeouts of HTTP clients and of commands: an attempt that a test makes itself is not retried, and a busy
    machine answers slowly."""
    minute = timedelta(minutes=1)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PATIENCE", "_MAX_TIMEOUT"):
            patch.setattr(session, name, minute)
        for name in ("CONNECT_TIMEOUT", "READ_TIMEOUT"):
            patch.setattr(aws_sessions, name, minute)
        for name in ("CONNECT", "READ"):
            patch.setattr(azure_clients, name, minute.seconds)
        yield


def _uncached(configure: Callable[..., None], **settings: Any) -> None:
    configure(**{**settings, "cache_logger_on_first_use": False})


def _reset_to_stderr(reset: Callable[[], None]) -> None:
    reset()
    structlog.configure(logger_factory=StderrLogger)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    choose_servers(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the API servers that were used: a local run and CI may differ."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    used = summary(pair for report in reports for pair in getattr(report, "user_properties", ()))
    if used:
        terminalreporter.write_line(f"Kubernetes API server: {used}")
