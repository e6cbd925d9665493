"""Redis connections: a closed one raises ConnectionError, health checks are refused, and none is released twice."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as UnreachableError

from service.engine.clients import RedisClients
from service.engine.connection import (
    CancellableConnection,
    SentinelConnection,
    SentinelTlsConnection,
    TcpConnection,
    TlsConnection,
    UnixSocketConnection,
)
from service.engine.single_client import SingleServerPool
from tests.canned_server import canned_server
from tests.redis_servers import TestServer
from tests.tls_files import make_tls_files

KINDS = [
    TcpConnection,
    SentinelConnection,
    UnixSocketConnection,
    TlsConnection,
    SentinelTlsConnection,
]


async def test_a_command_on_a_tls_connection_that_is_over_is_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[asyncio.StreamWriter] = []
    opened = asyncio.open_connection

    async def remembered(**how: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await opened(**how)
        writers.append(writer)
        return reader, writer

    monkeypatch.setattr(asyncio, "open_connection", remembered)
    tls_files = make_tls_files(tmp_path)
    async with canned_server([[b""]], tls_files) as (_, port):
        connection = TlsConnection(
            host="127.0.0.1", port=port, protocol=2, driver_info=None, ssl_ca_certs=str(tls_files.ca)
        )
        await connection.connect()  # type: ignore[no-untyped-call]
        (writer,) = writers
        # As a server that goes away in the middle of a greeting leaves it: both sides have closed it.
        writer.transport.abort()
        writer.transport.close()
        with pytest.raises(UnreachableError):
            await connection.send_command("PING")
        assert not connection.is_connected
        await asyncio.sleep(0)


async def test_an_error_of_our_own_is_no_lost_connection() -> None:
    class BrokenIterable:
        def __iter__(self) -> Any:
            found = None
            yield found.no_such_name  # type: ignore[attr-defined]

    async with canned_server([[]]) as (_, port):
        connection = TcpConnection(host="127.0.0.1", port=port, protocol=2, driver_info=None)
        await connection.connect()  # type: ignore[no-untyped-call]
        with pytest.raises(AttributeError, match="no_such_name"):
            await connection.send_packed_command(BrokenIterable())
        await connection.disconnect()


@pytest.mark.parametrize("kind", KINDS)
def test_health_checks_are_refused(kind: type[CancellableConnection]) -> None:
    where: dict[str, Any] = {"connection_pool": None} if "Sentinel" in kind.__name__ else {}
    assert kind(**where).health_check_interval == 0
    with pytest.raises(ValueError, match="health_check_interval must be 0"):
        kind(**where, health_check_interval=1)


async def test_a_connection_is_released_once(embedded_server: TestServer) -> None:
    connections = RedisClients(msgspec.structs.replace(embedded_server.settings(shards=1), max_connections=1))
    assert isinstance(connections.client, Redis)
    pool = connections.client.connection_pool
    assert isinstance(pool, SingleServerPool)
    for _ in range(2):
        # The first time it is new, the second time it was free.
        lent = await pool.get_connection()
        await pool.release(lent)
        with pytest.raises(RuntimeError, match="not in use"):
            await pool.release(lent)
    assert await connections.client.ping()
    await connections.aclose()
