"""Fixtures that every test may ask for."""

import signal

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
    "cluster_server",
    "embedded_server",
    "redis_server",
    "redis_settings",
    "sentinel_server",
    "server",
]
