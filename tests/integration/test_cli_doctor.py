"""`knell doctor` finds what is wrong with a Redis server and says how to fix it; what it can't read is unknown."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from service.settings import RedisSettings, RedisUrl, Secret
from standins.redis_servers import LocalRedis
from tests.integration.command_line import CommandResult, environment, invoke, operated
from tests.redis_servers import TestServer, kinds

WORD = "s3cret-word"


@pytest.fixture
def own_server() -> Iterator[LocalRedis]:
    """A server that a test may misconfigure."""
    with LocalRedis() as started:
        yield started


def examined(redis: RedisSettings, **variables: str) -> tuple[CommandResult, dict[str, dict[str, Any]]]:
    answer = invoke({**environment(redis), **variables}, "doctor", "--output", "json")
    return answer, {finding["check"]: finding for finding in answer.json["findings"]}


async def test_a_correct_server_of_any_kind_passes_all_checks(server: TestServer) -> None:
    async with operated(server) as engine:
        answer, findings = await asyncio.to_thread(examined, engine.settings.redis)
        left = [
            key async for key in engine.client.scan_iter(match=f"{engine.settings.redis.prefix}:*doctor*", count=1000)
        ]
    assert {finding["check"]: finding["state"] for finding in findings.values()} == dict.fromkeys(findings, "fine")
    assert set(findings) == {
        "reachable", "version", "mode", "role", "persistence", "memory", "clock", "permissions", "scripts", "shards",
    }  # fmt: skip
    assert (answer.code, answer.json["sound"]) == (0, True)
    assert left == []
    table = await asyncio.to_thread(invoke, environment(engine.settings.redis), "doctor")
    assert table.code == 0


def test_a_server_that_does_not_listen_is_reported() -> None:
    nowhere = RedisSettings(url=RedisUrl("redis", host="127.0.0.1", port=1))
    answer, findings = examined(nowhere)
    assert (answer.code, findings["reachable"]["state"]) == (1, "wrong")
    assert "redis://127.0.0.1:1/0" in findings["reachable"]["what"]
    assert "start the server, or set redis.url" in findings["reachable"]["mend"]
    assert list(findings) == ["reachable"]


def test_a_hung_server_is_reported_after_a_short_timeout(own_server: LocalRedis) -> None:
    own_server.freeze()
    try:
        answer, findings = examined(own_server.settings())
    finally:
        own_server.thaw()
    assert (answer.code, "did not answer in time" in findings["reachable"]["what"]) == (1, True)


@pytest.mark.parametrize(
    ("setting", "value", "check", "state", "what", "mend"),
    [
        ("appendonly", "no", "persistence", "wrong", "a restart loses every event", "appendonly yes"),
        ("appendfsync", "no", "persistence", "warning", "appendfsync no", "appendfsync everysec"),
        ("maxmemory-policy", "allkeys-lru", "memory", "wrong", "allkeys-lru", "noeviction"),
        ("maxmemory", "100", "memory", "wrong", "all of maxmemory is used", "raise maxmemory"),
    ],
)
def test_a_wrong_setting_of_the_server_is_found(
    own_server: LocalRedis, setting: str, value: str, check: str, state: str, what: str, mend: str
) -> None:
    with own_server.admin() as client:
        client.config_set(setting, value)
    answer, findings = examined(own_server.settings())
    assert findings[check]["state"] == state
    assert what in findings[check]["what"]
    assert mend in findings[check]["mend"]
    assert answer.code == (1 if state == "wrong" else 0)


def test_a_nearly_full_server_is_a_warning(own_server: LocalRedis) -> None:
    with own_server.admin() as client:
        client.setrange("ballast", 30_000_000, "x")
        client.config_set("maxmemory", str(int(int(client.info("memory")["used_memory"]) * 1.05)))
    answer, findings = examined(own_server.settings())
    assert (answer.code, findings["memory"]["state"]) == (0, "warning")
    assert "of maxmemory is used" in findings["memory"]["what"]


def test_snapshots_alone_are_a_warning(own_server: LocalRedis) -> None:
    with own_server.admin() as client:
        client.config_set("appendonly", "no")
        client.config_set("save", "900 1")
    answer, findings = examined(own_server.settings())
    assert (answer.code, findings["persistence"]["state"]) == (0, "warning")
    assert "a crash loses everything since the last one" in findings["persistence"]["what"]


def test_a_replica_is_refused(own_server: LocalRedis) -> None:
    with LocalRedis() as primary, own_server.admin() as client:
        client.replicaof(primary.host, primary.port)
        answer, findings = examined(own_server.settings())
    assert (answer.code, findings["role"]["state"]) == (1, "wrong")
    assert "let redis.url name the primary" in findings["role"]["mend"]


async def test_another_shard_count_than_the_stored_one_is_found(embedded_server: TestServer) -> None:
    async with operated(embedded_server, shards=3) as engine:
        other = msgspec.structs.replace(engine.settings.redis, shards=2)
        answer, findings = await asyncio.to_thread(examined, other)
        assert (answer.code, findings["shards"]["state"]) == (1, "wrong")
        assert findings["shards"]["what"] == "the data is kept in 3 shards, but redis.shards says 2"
        assert "knell reshard --to 2" in findings["shards"]["mend"]
        await engine.client.hset(engine.installation.shards[0].stem + "meta", "resharding", "5")
        answer, findings = await asyncio.to_thread(examined, engine.settings.redis)
        assert (answer.code, "a move to 5 shards" in findings["shards"]["what"]) == (1, True)


def test_a_cluster_that_is_taken_for_one_server_is_found(cluster_server: TestServer) -> None:
    redis = cluster_server.settings()
    node = redis.entry_nodes()[0]
    single = RedisSettings(url=RedisUrl("redis", host=node.host, port=node.port))
    answer, findings = examined(single)
    assert (answer.code, findings["mode"]["state"]) == (1, "wrong")
    assert "set redis.mode (KNELL_REDIS_MODE) to cluster" in findings["mode"]["mend"]


def test_one_server_that_is_taken_for_a_cluster_is_found(embedded_server: TestServer) -> None:
    redis = msgspec.structs.replace(embedded_server.settings(), mode="cluster")
    answer, findings = examined(redis)
    assert (answer.code, findings["reachable"]["state"]) == (1, "wrong")
    assert "redis.mode" in findings["reachable"]["mend"]


def test_sentinels_that_know_no_such_master_are_named(sentinel_server: TestServer) -> None:
    redis = msgspec.structs.replace(sentinel_server.settings(), sentinel_master="other")
    answer, findings = examined(redis)
    assert (answer.code, findings["reachable"]["state"]) == (1, "wrong")
    assert "master other" in findings["reachable"]["what"]


def limited(server: LocalRedis, *rules: str) -> RedisSettings:
    """Settings of a user with these ACL rules, whose password must not be shown."""
    with server.admin() as client:
        client.execute_command("ACL", "SETUSER", "limited", "reset", "on", f">{WORD}", *rules)
    url = RedisUrl("redis", host=server.host, port=server.port, username="limited", password=Secret(WORD))
    return RedisSettings(url=url)


def with_password(redis: RedisSettings, password: str = WORD) -> dict[str, str]:
    return {"KNELL_REDIS_URL": f"redis://limited:{password}@{redis.url.host}:{redis.url.port}/0"}


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind in ("embedded", "redis")])
def test_missing_permissions_are_listed(kind: str, request: pytest.FixtureRequest) -> None:
    server: LocalRedis = request.getfixturevalue(f"{kind}_server").server
    redis = limited(server, "~knell:*", "+@all", "-xadd", "-xgroup|create", "-zscan")
    answer, findings = examined(redis, **with_password(redis))
    assert (answer.code, findings["permissions"]["state"]) == (1, "wrong")
    assert findings["permissions"]["what"] == "the user may not run zscan, xadd, xgroup|create"
    assert "ACL SETUSER <user> +zscan +xadd +xgroup|create" in findings["permissions"]["mend"]
    assert "s3cret" not in answer.out + answer.err

    redis = limited(server, "~other:*", "+@all")
    answer, findings = examined(redis, **with_password(redis))
    assert (answer.code, findings["permissions"]["what"]) == (1, "the user may not use all keys knell:*")
    assert "ACL SETUSER <user> ~knell:*" in findings["permissions"]["mend"]


def test_what_a_managed_server_hides_is_unknown_and_not_wrong(own_server: LocalRedis) -> None:
    with own_server.admin() as client:
        client.config_set("appendonly", "no")
    redis = limited(own_server, "~knell:*", "+@all", "-config")
    answer, findings = examined(redis, **with_password(redis))
    assert (answer.code, findings["persistence"]["state"]) == (0, "unknown")
    assert "CONFIG is forbidden" in findings["persistence"]["what"]
    table = invoke({**environment(redis), **with_password(redis)}, "doctor")
    assert "can't tell" in table.out


def test_a_refused_login_is_reported_without_the_password(own_server: LocalRedis) -> None:
    redis = limited(own_server, "~*", "+@all")
    answer, findings = examined(redis, **with_password(redis, "wr0ng-word"))
    assert (answer.code, findings["reachable"]["state"]) == (1, "wrong")
    assert "refused the login" in findings["reachable"]["what"]
    assert "redis.password_file" in findings["reachable"]["mend"]
    assert "wr0ng" not in answer.out + answer.err
