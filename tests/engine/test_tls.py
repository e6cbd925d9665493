"""A whole deletion over TLS, as a user with a password file, on a Cluster and with Sentinel.

The server inside the wheel is built without TLS, so these run where there is a redis-server.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from redis.exceptions import RedisError

from service.contract import Gone
from service.settings import RedisSettings
from standins.redis_servers import LocalRedis, LocalRedisCluster, LocalRedisSentinel, TlsFiles, redis_binary
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from tests.redis_servers import AnyServer
from tests.tls_files import make_tls_files

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(redis_binary() is None, reason="needs redis-server: the embedded one is built without TLS"),
]
USER, SENTRY = "knell", "asker"


@pytest.fixture(scope="module")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls_files"))


@pytest.fixture
def cluster(tls_files: TlsFiles) -> Iterator[LocalRedisCluster]:
    with LocalRedisCluster(redis_binary(), replicas=1, tls_files=tls_files) as started:
        yield started


@pytest.fixture
def sentinels(tls_files: TlsFiles) -> Iterator[LocalRedisSentinel]:
    with LocalRedisSentinel(redis_binary(), tls_files=tls_files) as started:
        yield started


def let_in(server: LocalRedis, user: str, password: str, *commands: str) -> None:
    with server.admin() as admin:
        admin.acl_setuser(user, enabled=True, reset_passwords=True, passwords=[f"+{password}"], keys=["*"],
                          channels=["*"], commands=list(commands))  # fmt: skip


def known_as(settings: RedisSettings, user: str, folder: Path, password: str) -> RedisSettings:
    (folder / user).write_text(password + "\n")
    return msgspec.structs.replace(settings, username=user, password_file=folder / user)


@asynccontextmanager
async def engine_on(server: AnyServer, settings: RedisSettings) -> AsyncIterator[EngineUnderTest]:
    engine = EngineUnderTest(server, settings)
    await engine.arrive()
    try:
        yield engine
    finally:
        await engine.close()


async def by_hand_and_by_worker(engine: EngineUnderTest) -> None:
    """Publish, plan, take and settle by hand what is in one shard; then a worker does the rest, and more."""
    one, provider = event("a"), ScriptedProvider()
    await engine.lay(one, [thing("first"), thing("second", stage=1)])
    taken = await engine.take(one, "hand", LANE)
    assert await engine.settle(taken, "hand", Gone()) == [True]
    others = [event(f"e{number}") for number in range(8)]
    await engine.publish(*others)
    await engine.start(provider)
    await engine.until_done(one, *others)
    assert sorted(provider.called) == sorted(["second", *(other.uid for other in others)])


def doors(servers: Sequence[LocalRedis], user: str) -> set[bool]:
    """Whether those who are in as that user came by the encrypted port."""
    found = set()
    for server in servers:
        if server.running:
            with server.admin() as admin:
                clients = [client for client in admin.client_list() if client["user"] == user]
            found |= {client["laddr"].endswith(f":{server.tls_port}") for client in clients}
    return found


async def test_a_cluster_is_worked_on_over_tls_as_a_user_whose_password_changes(
    cluster: LocalRedisCluster, tmp_path: Path
) -> None:
    for node in cluster.nodes:
        let_in(node, USER, "first", "+@all", "-@admin", "+info")
    settings = known_as(cluster.settings(), USER, tmp_path, "first")
    async with engine_on(cluster, settings) as engine:
        await by_hand_and_by_worker(engine)
        assert doors(cluster.nodes, USER) == {True}

        # The file first, then the servers: those who are in stay in, and whoever comes anew comes with the new one.
        (tmp_path / USER).write_text("second\n")
        for node in cluster.nodes:
            let_in(node, USER, "second", "+@all", "-@admin", "+info")
        cluster.owner_of("{0}").kill()
        later = [event(f"later{number}") for number in range(8)]
        await cluster.until_whole()
        await engine.publish(*later)
        await engine.until_done(*later)
        assert doors(cluster.nodes, USER) == {True}


async def test_a_wrong_password_keeps_out_of_an_encrypted_cluster(tls_files: TlsFiles, tmp_path: Path) -> None:
    with LocalRedisCluster(redis_binary(), tls_files=tls_files) as cluster:
        for node in cluster.nodes:
            let_in(node, USER, "first", "+@all")
        engine = EngineUnderTest(cluster, known_as(cluster.settings(), USER, tmp_path, "wrong"))
        with pytest.raises(RedisError, match="invalid username-password"):
            await engine.client.execute_command("PING")
        await engine.close()


async def test_sentinels_and_the_servers_that_they_name_are_worked_with_over_tls_through_a_failover(
    sentinels: LocalRedisSentinel, tmp_path: Path
) -> None:
    for server in sentinels.servers:
        let_in(server, USER, "secret", "+@all", "-@admin", "+info")
    for sentinel in sentinels.sentinels:
        let_in(sentinel, SENTRY, "other", "+sentinel|masters")
    settings = known_as(sentinels.settings(), USER, tmp_path, "secret")
    (tmp_path / SENTRY).write_text("other\n")
    settings = msgspec.structs.replace(settings, sentinel_username=SENTRY, sentinel_password_file=tmp_path / SENTRY)
    async with engine_on(sentinels, settings) as engine:
        await by_hand_and_by_worker(engine)
        assert doors(sentinels.servers, USER) == {True}
        assert doors(list(sentinels.sentinels), SENTRY) == {True}

        old = sentinels.kill_master()
        await sentinels.until_promoted(old)
        later = event("later")
        await engine.publish(later)
        await engine.until_done(later)
        assert doors(sentinels.servers, USER) == {True}
