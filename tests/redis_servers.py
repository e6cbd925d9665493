"""Redis servers for tests, and the fixtures that start each kind once per test process.
`make test` uses the embedded one, and every kind for tests marked `every_server`; `make test-long` uses all of them.
KNELL_TEST_SERVERS (embedded, redis, cluster, sentinel) requires kinds; unset, all that can be started are used."""

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import pytest

from service.settings import RedisSettings
from standins.redis_servers import (
    LocalRedis,
    LocalRedisCluster,
    LocalRedisSentinel,
    NoServerError,
    embedded_binary,
    redis_binary,
)

VARIABLE: Final = "KNELL_TEST_SERVERS"
KINDS: Final = ("embedded", "redis", "cluster", "sentinel")
CALL_TIMEOUT: Final = timedelta(seconds=9)
"""As long as the lease of the engine's tests allows: on a busy machine a large script is slow, and not lost."""

AnyServer: TypeAlias = LocalRedis | LocalRedisCluster | LocalRedisSentinel


@dataclass(frozen=True, slots=True)
class TestServer:
    """A running server that tests share. Each test gets a prefix of its own, so none sees another's keys."""

    kind: str
    server: AnyServer

    __test__ = False

    def settings(self, *, prefix: str | None = None, shards: int | None = None) -> RedisSettings:
        chosen = prefix if prefix is not None else f"t{uuid.uuid4().hex[:12]}"
        if shards is None:
            settings = self.server.settings(prefix=chosen)
        else:
            settings = self.server.settings(prefix=chosen, shards=shards)
        return msgspec.structs.replace(settings, call_timeout=CALL_TIMEOUT)


def kinds() -> list[str]:
    """A demanded kind is always in the list: if it cannot be started, its tests fail instead of vanishing."""
    demanded = [kind.strip() for kind in os.environ.get(VARIABLE, "").split(",") if kind.strip()]
    unknown = sorted(set(demanded) - set(KINDS))
    if unknown:
        raise pytest.UsageError(f"{VARIABLE}: unknown {', '.join(unknown)}; allowed: {', '.join(KINDS)}")
    if demanded:
        return [kind for kind in KINDS if kind in demanded]
    return [kind for kind in KINDS if kind != "redis" or redis_binary() is not None]


def start(kind: str) -> AnyServer:
    """Without fsync per write and with replicas: quick, and fit for a failover."""
    starts: dict[str, Callable[[], AnyServer]] = {
        "embedded": lambda: LocalRedis(embedded_binary()),
        "redis": lambda: LocalRedis(_demanded_redis()),
        "cluster": lambda: LocalRedisCluster(embedded_binary(), replicas=1),
        "sentinel": lambda: LocalRedisSentinel(embedded_binary(), replicas=1),
    }
    return starts[kind]().start()


def _demanded_redis() -> Path:
    binary = redis_binary()
    if binary is None:
        raise NoServerError(f"{VARIABLE} demands redis, but there is no redis-server on PATH")
    return binary


def _shared(kind: str) -> Iterator[TestServer]:
    server = start(kind)
    try:
        yield TestServer(kind, server)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[TestServer]:
    yield from _shared("embedded")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[TestServer]:
    yield from _shared("redis")


@pytest.fixture(scope="session")
def cluster_server() -> Iterator[TestServer]:
    yield from _shared("cluster")


@pytest.fixture(scope="session")
def sentinel_server() -> Iterator[TestServer]:
    yield from _shared("sentinel")


def choose_servers(items: list[pytest.Item]) -> None:
    """Leaves to the long run what is on another kind than the embedded one, unless the test is marked `every_server`,
    and what needs the real control plane. Tests on one kind come one after the other: few processes then start it."""
    for item in items:
        elsewhere = _kind_of(item) != "embedded" and item.get_closest_marker("every_server") is None
        if elsewhere or "plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)
    # With `plane` a test means one cluster, which `api` must be, too.
    items[:] = [item for item in items if "plane" not in getattr(item, "fixturenames", ()) or _api_of(item) == "real"]
    items.sort(key=lambda item: KINDS.index(_kind_of(item)), reverse=True)


def _api_of(item: pytest.Item) -> str:
    return str(_parameters(item).get("api", "real"))


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _kind_of(item: pytest.Item) -> str:
    parameters = _parameters(item)
    chosen = {str(parameters.get(fixture, "embedded")) for fixture in ("server", "own_server")} - {"embedded"}
    return chosen.pop() if chosen else "embedded"


@pytest.fixture(params=kinds())
def server(request: pytest.FixtureRequest) -> TestServer:
    """A test that takes this runs on every kind. It must not kill the server: others use it, too."""
    started: TestServer = request.getfixturevalue(f"{request.param}_server")
    return started


@pytest.fixture
def redis_settings(server: TestServer) -> RedisSettings:
    return server.settings()
