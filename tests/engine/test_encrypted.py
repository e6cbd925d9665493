"""The whole way of a deletion over TLS, as a user with a password from a file, on a Cluster and on a Sentinel set-up.

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
from standins.servers import Cluster, Papers, Sentinels, Server, redis_binary
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from tests.papers import draw_up
from tests.servers import AnyServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(redis_binary() is None, reason="needs redis-server: the embedded one is built without TLS"),
]
USER, SENTRY = "knell", "asker"


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return draw_up(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def cluster(papers: Papers) -> Iterator[Cluster]:
    with Cluster(redis_binary(), replicas=1, papers=papers) as started:
        yield started


@pytest.fixture
def sentinels(papers: Papers) -> Iterator[Sentinels]:
    with Sentinels(redis_binary(), papers=papers) as started:
        yield started


def let_in(server: Server, user: str, password: str, *commands: str) -> None:
    with server.admin() as admin:
        admin.acl_setuser(user, enabled=True, reset_passwords=True, passwords=[f"+{password}"], keys=["*"],
                          channels=["*"], commands=list(commands))  # fmt: skip


def known_as(settings: RedisSettings, user: str, folder: Path, password: str) -> RedisSettings:
    (folder / user).write_text(password + "\n")
    return msgspec.structs.replace(settings, username=user, password_file=folder / user)


@asynccontextmanager
async def a_world(server: AnyServer, settings: RedisSettings) -> AsyncIterator[World]:
    world = World(server, settings)
    await world.arrive()
    try:
        yield world
    finally:
        await world.close()


async def by_hand_and_by_worker(world: World) -> None:
    """Publish, plan, take and settle by hand what is in one shard; then a worker does the rest, and more."""
    one, outside = event("a"), Outside()
    await world.lay(one, [thing("first"), thing("second", stage=1)])
    taken = await world.take(one, "hand", LANE)
    assert await world.settle(taken, "hand", Gone()) == [True]
    others = [event(f"e{number}") for number in range(8)]
    await world.publish(*others)
    await world.start(outside)
    await world.until_done(one, *others)
    assert sorted(outside.called) == sorted(["second", *(other.uid for other in others)])


def doors(servers: Sequence[Server], user: str) -> set[bool]:
    """Whether those who are in as that user came by the encrypted port."""
    found = set()
    for server in servers:
        if server.running:
            with server.admin() as admin:
                clients = [client for client in admin.client_list() if client["user"] == user]
            found |= {client["laddr"].endswith(f":{server.tls_port}") for client in clients}
    return found


async def test_a_cluster_is_worked_on_over_tls_as_a_user_whose_password_changes(
    cluster: Cluster, tmp_path: Path
) -> None:
    for node in cluster.nodes:
        let_in(node, USER, "first", "+@all", "-@admin", "+info")
    settings = known_as(cluster.settings(), USER, tmp_path, "first")
    async with a_world(cluster, settings) as world:
        await by_hand_and_by_worker(world)
        assert doors(cluster.nodes, USER) == {True}

        # The file first, then the servers: those who are in stay in, and whoever comes anew comes with the new one.
        (tmp_path / USER).write_text("second\n")
        for node in cluster.nodes:
            let_in(node, USER, "second", "+@all", "-@admin", "+info")
        cluster.owner_of("{0}").kill()
        later = [event(f"later{number}") for number in range(8)]
        await cluster.until_whole()
        await world.publish(*later)
        await world.until_done(*later)
        assert doors(cluster.nodes, USER) == {True}


async def test_a_wrong_password_keeps_out_of_an_encrypted_cluster(papers: Papers, tmp_path: Path) -> None:
    with Cluster(redis_binary(), papers=papers) as cluster:
        for node in cluster.nodes:
            let_in(node, USER, "first", "+@all")
        world = World(cluster, known_as(cluster.settings(), USER, tmp_path, "wrong"))
        with pytest.raises(RedisError, match="invalid username-password"):
            await world.client.execute_command("PING")
        await world.close()


async def test_sentinels_and_the_servers_that_they_name_are_worked_with_over_tls_through_a_failover(
    sentinels: Sentinels, tmp_path: Path
) -> None:
    for server in sentinels.servers:
        let_in(server, USER, "secret", "+@all", "-@admin", "+info")
    for sentinel in sentinels.sentinels:
        let_in(sentinel, SENTRY, "other", "+sentinel|masters")
    settings = known_as(sentinels.settings(), USER, tmp_path, "secret")
    (tmp_path / SENTRY).write_text("other\n")
    settings = msgspec.structs.replace(settings, sentinel_username=SENTRY, sentinel_password_file=tmp_path / SENTRY)
    async with a_world(sentinels, settings) as world:
        await by_hand_and_by_worker(world)
        assert doors(sentinels.servers, USER) == {True}
        assert doors(list(sentinels.sentinels), SENTRY) == {True}

        old = sentinels.kill_master()
        await sentinels.until_promoted(old)
        later = event("later")
        await world.publish(later)
        await world.until_done(later)
        assert doors(sentinels.servers, USER) == {True}
