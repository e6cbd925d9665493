"""Fixtures that every test may ask for."""

from tests.servers import (
    cluster_server,
    embedded_server,
    redis_server,
    redis_settings,
    sentinel_server,
    server,
)

__all__ = [
    "cluster_server",
    "embedded_server",
    "redis_server",
    "redis_settings",
    "sentinel_server",
    "server",
]
