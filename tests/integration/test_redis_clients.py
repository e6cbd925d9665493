"""Redis clients on every kind of server: routing, separate pools, rotating passwords, recovery."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import exceptions as errors

from service.engine.clients import RedisClient, RedisClients
from service.engine.errors import UNAVAILABLE, is_unavailable
from service.settings import HostPort, RedisSettings, RedisUrl, Secret
from standins.redis_servers import LocalRedis, LocalRedisCluster, LocalRedisSentinel, embedded_binary, redis_binary
from tests.redis_servers import TestServer
from tests.tls_files import make_tls_files

COUNT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture
async def connections(redis_settings: RedisSettings) -> AsyncIterator[RedisClients]:
    made = RedisClients(redis_settings)
    yield made
    await made.aclose()


async def eventually(call: Callable[[], Awaitable[Any]], within: float = 60) -> list[BaseException]:
    """Repeats a call until it succeeds and returns what it raised before. Only absence is waited out."""
    raised: list[BaseException] = []
    async with asyncio.timeout(within):
        while True:
            try:
                await call()
            except Exception as error:
                if not is_unavailable(error):
                    raise
                raised.append(error)
                await asyncio.sleep(0.02)
            else:
                return raised


def key(settings: RedisSettings, shard: int, name: str) -> str:
    return f"{settings.prefix}:{{{shard}}}:{name}"


async def blocked(client: RedisClient, count: int) -> None:
    """Until so many clients wait in a blocking read."""
    async with asyncio.timeout(60):
        while (await client.info("clients"))["blocked_clients"] < count:  # noqa: ASYNC110 - a state of the server
            await asyncio.sleep(0.01)


async def read(client: RedisClient, name: str, block: int = 100_000) -> Any:
    return await client.execute_command("XREAD", "BLOCK", block, "STREAMS", name, "$")


def commands(cluster: LocalRedisCluster, name: str) -> int:
    total = 0
    for node in cluster.nodes:
        with node.admin() as client:
            total += client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]
    return total


@pytest.mark.every_server
async def test_scripts_run_in_every_shard_and_answer_in_bytes(connections: RedisClients) -> None:
    settings = connections.settings
    for shard in range(settings.shards):
        name = key(settings, shard, "n")
        assert await connections.client.execute_command("EVAL", COUNT, 1, name) == 1
        assert await connections.client.get(name) == b"1"


@pytest.mark.every_server
async def test_a_blocking_read_finds_its_shard_and_what_is_added_meanwhile(connections: RedisClients) -> None:
    settings = connections.settings
    reader = connections.blocking(timedelta(seconds=10))
    for shard in range(settings.shards):
        name = key(settings, shard, "wake")
        await connections.client.xgroup_create(name, "g", mkstream=True)
        words = ("GROUP", "g", "w", "COUNT", 1, "BLOCK", 10_000, "STREAMS", name, ">")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_execute(reader, "XREADGROUP", *words))
            await connections.client.xadd(name, {"a": "1"})
        ((stream, ((_, fields),)),) = reading.result()
        assert (stream, fields) == (name.encode(), {b"a": b"1"})


async def _execute(client: RedisClient, *words: Any) -> Any:
    return await client.execute_command(*words)


@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_blocking_read_ends_at_once_whenever_that_comes(
    connections: RedisClients, turns: int
) -> None:
    reader = connections.blocking(timedelta(seconds=100))
    name = key(connections.settings, 0, "wake")
    for _ in range(3):
        reading = asyncio.create_task(read(reader, name))
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait([reading])
        assert reading.cancelled()


async def test_blocked_reads_take_no_connection_from_ordinary_calls(server: TestServer) -> None:
    settings = msgspec.structs.replace(server.settings(shards=1), max_connections=1)
    connections = RedisClients(settings)
    reader = connections.blocking(timedelta(seconds=100))
    name = key(settings, 0, "wake")
    readings = [asyncio.create_task(read(reader, name)) for _ in range(5)]
    async with asyncio.timeout(60):
        assert await connections.client.execute_command("EVAL", COUNT, 1, key(settings, 0, "n")) == 1
    assert not any(reading.done() for reading in readings)
    for reading in readings:
        reading.cancel()
    await asyncio.gather(*readings, return_exceptions=True)
    await connections.aclose()


async def test_more_calls_than_connections_wait_for_their_turn(server: TestServer) -> None:
    settings = msgspec.structs.replace(server.settings(shards=1), max_connections=2)
    connections = RedisClients(settings)
    name = key(settings, 0, "n")
    answers = await asyncio.gather(*(connections.client.execute_command("EVAL", COUNT, 1, name) for _ in range(50)))
    assert sorted(answers) == list(range(1, 51))
    await connections.aclose()


async def test_a_blocking_read_costs_no_extra_round_trip_on_a_cluster(cluster_server: TestServer) -> None:
    cluster = cluster_server.server
    assert isinstance(cluster, LocalRedisCluster)
    connections = RedisClients(cluster_server.settings())
    reader = connections.blocking(timedelta(seconds=1))
    before = commands(cluster, "command|getkeys")
    for shard in range(4):
        await read(reader, key(connections.settings, shard, "wake"), 1)
    assert commands(cluster, "command|getkeys") == before
    await connections.aclose()


async def test_a_call_without_an_answer_ends_after_its_timeout() -> None:
    with LocalRedis() as server:
        settings = msgspec.structs.replace(server.settings(), call_timeout=timedelta(milliseconds=200))
        connections = RedisClients(settings)
        await connections.client.ping()
        server.freeze()
        with pytest.raises(UNAVAILABLE) as caught:
            await connections.client.ping()
        server.thaw()
        assert is_unavailable(caught.value)
        await eventually(connections.client.ping)
        await connections.aclose()


async def test_a_lost_call_is_not_sent_again_by_the_library() -> None:
    with LocalRedis() as server:
        settings = msgspec.structs.replace(server.settings(), call_timeout=timedelta(milliseconds=200))
        connections = RedisClients(settings)
        await connections.client.ping()
        server.freeze()
        with pytest.raises(errors.TimeoutError):
            await connections.client.execute_command("EVAL", COUNT, 1, "calls")
        # What was sent is still in the server's hands and is carried out now.
        server.thaw()
        await eventually(connections.client.ping)
        assert await connections.client.get("calls") == b"1"
        await connections.aclose()


async def test_a_server_that_was_killed_is_found_again_when_it_is_back() -> None:
    with LocalRedis() as server:
        connections = RedisClients(server.settings())
        reader = connections.blocking(timedelta(seconds=100))
        reading = asyncio.create_task(read(reader, "wake"))
        await blocked(connections.client, 1)
        server.kill()
        with pytest.raises(UNAVAILABLE):
            await connections.client.ping()
        with pytest.raises(UNAVAILABLE):
            await reading
        await server.revive()
        assert await eventually(connections.client.ping) == []
        await connections.aclose()


@pytest.mark.long
async def test_a_sentinel_failover_leads_all_connections_to_the_new_master() -> None:
    with LocalRedisSentinel(embedded_binary()) as group:
        connections = RedisClients(group.settings())
        reader = connections.blocking(timedelta(seconds=100))
        await connections.client.execute_command("EVAL", COUNT, 1, "n")
        reading = asyncio.create_task(read(reader, "wake"))
        await blocked(connections.client, 1)
        old = group.kill_master()
        with pytest.raises(UNAVAILABLE):
            await reading
        raised = await eventually(lambda: connections.client.execute_command("EVAL", COUNT, 1, "n"))
        assert raised
        new = await group.until_promoted(old)
        with new.admin() as client:
            assert int(client.get("n") or 0) >= 1
        await eventually(lambda: read(reader, "wake", 1))
        await connections.aclose()


@pytest.mark.long
async def test_a_demoted_master_is_left_for_the_new_one() -> None:
    with LocalRedisSentinel(embedded_binary()) as group:
        old = group.master
        connections = RedisClients(group.settings())
        await connections.client.ping()
        with group.sentinels[0].admin() as client:
            client.execute_command("SENTINEL", "FAILOVER", "mymaster")
        new = await group.until_promoted(old)
        # The sentinels demote it only after some ten seconds; till then it takes writes that will be lost.
        with old.admin() as client:
            client.execute_command("REPLICAOF", new.host, new.port)
        await eventually(lambda: connections.client.execute_command("EVAL", COUNT, 1, "after"))
        with new.admin() as client:
            assert client.get("after") == "1"
        await connections.aclose()


@pytest.mark.long
async def test_many_connections_at_once_lose_no_sentinel() -> None:
    with LocalRedisSentinel(embedded_binary()) as group:
        group.sentinels[0].kill()
        connections = RedisClients(group.settings())
        finder = connections._finder
        assert finder is not None
        known = set(map(id, finder.sentinels))
        await asyncio.gather(*(connections.client.ping() for _ in range(60)))
        assert set(map(id, finder.sentinels)) == known
        await connections.aclose()


@pytest.mark.long
async def test_a_killed_cluster_master_is_replaced_and_the_other_shards_go_on() -> None:
    with LocalRedisCluster(embedded_binary(), replicas=1) as cluster:
        connections = RedisClients(cluster.settings())
        reader = connections.blocking(timedelta(seconds=1))

        def count(shard: int) -> Awaitable[Any]:
            return connections.client.execute_command("EVAL", COUNT, 1, key(connections.settings, shard, "n"))

        def look(shard: int) -> Awaitable[Any]:
            return read(reader, key(connections.settings, shard, "wake"), 1)

        for shard in range(4):
            await count(shard)
            await look(shard)
        cluster.owner_of("{0}").kill()
        assert await eventually(lambda: count(0))
        for shard in range(4):
            await eventually(partial(count, shard))
            await eventually(partial(look, shard))
        await connections.aclose()


@pytest.mark.long
async def test_a_cluster_that_is_wholly_away_is_a_lost_connection_and_comes_back() -> None:
    with LocalRedisCluster(embedded_binary()) as cluster:
        connections = RedisClients(cluster.settings())
        await connections.client.execute_command("EVAL", COUNT, 1, "n")
        for node in cluster.nodes:
            node.kill()
        for _ in range(3):
            with pytest.raises(errors.ConnectionError):
                await connections.client.execute_command("EVAL", COUNT, 1, "n")
        for node in cluster.nodes:
            await node.revive()
        await eventually(lambda: connections.client.execute_command("EVAL", COUNT, 1, "n"))
        await connections.aclose()


async def test_a_password_file_is_read_for_every_new_connection(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("first\n")
    with LocalRedis() as server:
        with server.admin() as admin:
            admin.acl_setuser("knell", enabled=True, passwords=["+first"], keys=["*"], commands=["+@all"])
        settings = msgspec.structs.replace(server.settings(), username="knell", password_file=secret)
        connections = RedisClients(settings)
        assert await connections.client.execute_command("ACL", "WHOAMI") == b"knell"
        with server.admin() as admin:
            admin.acl_setuser("knell", enabled=True, passwords=["-first", "+second"])
            admin.client_kill_filter(user="knell")
        # The first call may still find the dead connection.
        with pytest.raises(UNAVAILABLE):
            await connections.client.ping()
        with pytest.raises(errors.AuthenticationError) as caught:
            await connections.client.ping()
        assert is_unavailable(caught.value)
        secret.write_text("second\r\n")
        assert await connections.client.execute_command("ACL", "WHOAMI") == b"knell"
        await connections.aclose()


async def test_a_password_file_that_is_gone_is_named() -> None:
    with LocalRedis() as server:
        settings = msgspec.structs.replace(server.settings(), password_file=Path("/no/such/file"))
        connections = RedisClients(settings)
        with pytest.raises(errors.AuthenticationError, match="/no/such/file cannot be read"):
            await connections.client.ping()
        await connections.aclose()


async def test_the_password_of_an_address_is_used_and_not_shown() -> None:
    with LocalRedis() as server:
        with server.admin() as admin:
            admin.acl_setuser("knell", enabled=True, passwords=["+hunter2"], keys=["*"], commands=["+@all"])
        url = RedisUrl("redis", host=server.host, port=server.port, username="knell", password=Secret("hunter2"))
        connections = RedisClients(RedisSettings(url=url))
        assert await connections.client.execute_command("ACL", "WHOAMI") == b"knell"
        assert "hunter2" not in f"{connections.client!r} {connections.settings!r}"
        await connections.aclose()


async def test_a_socket_file_serves_as_an_address(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with LocalRedis(options={"unixsocket": str(path)}):
        connections = RedisClients(RedisSettings(url=RedisUrl("unix", path=str(path), db=3)))
        await connections.client.set("a", "1")
        assert await connections.client.get("a") == b"1"
        await connections.aclose()


@pytest.mark.skipif(redis_binary() is None, reason="the embedded server is built without TLS")
async def test_tls_is_verified_unless_the_settings_disable_it(tmp_path: Path) -> None:
    with LocalRedis(redis_binary(), tls_files=make_tls_files(tmp_path)) as server:
        known = server.settings()
        trusted = RedisClients(known)
        assert await trusted.client.ping()
        unknown = msgspec.structs.replace(known.tls, ca_file=None)
        strange = RedisClients(msgspec.structs.replace(known, tls=unknown))
        with pytest.raises(errors.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await strange.client.ping()
        lenient = RedisClients(msgspec.structs.replace(known, tls=msgspec.structs.replace(unknown, verify=False)))
        assert await lenient.client.ping()
        for connections in (trusted, strange, lenient):
            await connections.aclose()


async def test_a_server_that_never_was_there_is_away() -> None:
    connections = RedisClients(RedisSettings(url=RedisUrl("redis", host="127.0.0.1", port=1)))
    with pytest.raises(UNAVAILABLE):
        await connections.client.ping()
    await connections.aclose()


@pytest.mark.parametrize(
    "settings",
    [
        RedisSettings(mode="sentinel", sentinels=(HostPort("127.0.0.1", 1),)),
        RedisSettings(mode="cluster", nodes=(HostPort("127.0.0.1", 1),)),
    ],
    ids=["sentinel", "cluster"],
)
async def test_no_sentinel_and_no_node_that_answers_is_away(settings: RedisSettings) -> None:
    connections = RedisClients(settings)
    with pytest.raises(UNAVAILABLE):
        await connections.client.execute_command("EVAL", COUNT, 1, "n")
    await connections.aclose()


async def test_a_server_out_of_memory_and_one_without_replicas_are_away() -> None:
    with LocalRedis() as server:
        connections = RedisClients(server.settings())
        for option, limit, unlimited in (("maxmemory", 1, 0), ("min-replicas-to-write", 1, 0)):
            await connections.client.config_set(option, limit)
            with pytest.raises(errors.ResponseError) as caught:
                await connections.client.execute_command("EVAL", COUNT, 1, "n")
            assert is_unavailable(caught.value)
            await connections.client.config_set(option, unlimited)
        await connections.aclose()


@pytest.mark.parametrize(
    "text", ["MISCONF Errors writing to the AOF file", "UNBLOCKED force unblock", "BUSY script", "LOADING x"]
)
def test_codes_without_a_class_of_their_own_are_recognised(text: str) -> None:
    assert is_unavailable(errors.ResponseError(text))


@pytest.mark.parametrize(
    "error",
    [
        errors.NoScriptError("No matching script"),
        errors.ResponseError("WRONGTYPE Operation against a key"),
        errors.ResponseError("ERR MISCONF inside a sentence"),
        errors.NoPermissionError("this user has no permissions"),
        errors.RedisClusterException("EVAL - all keys must map to the same key slot"),
        ValueError("x"),
        ExceptionGroup("mixed", [errors.ConnectionError("x"), ValueError("y")]),
    ],
)
def test_a_fault_is_not_taken_for_an_absent_server(error: BaseException) -> None:
    assert not is_unavailable(error)


def test_a_group_of_lost_connections_is_away() -> None:
    assert is_unavailable(ExceptionGroup("all", [errors.ConnectionError("x"), TimeoutError()]))
