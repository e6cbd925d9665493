"""Checks of `knell doctor` on replies of servers that can't be started in tests."""

from datetime import timedelta
from typing import Any

import pytest

from service.cli.doctor.redis_checks import (
    NodeFacts,
    check_clock,
    check_memory,
    check_mode,
    check_persistence,
    check_role,
    check_shards,
    check_version,
)
from service.engine.batch_reads import StoredShards
from service.settings import RedisSettings


def told(info: dict[str, Any] | None = None, config: dict[str, str] | None = None) -> NodeFacts:
    return NodeFacts(node="", info=info, config=config)


@pytest.mark.parametrize(
    ("info", "state"),
    [
        ({"redis_version": "6.2.14"}, "wrong"),
        ({"redis_version": "7.0.0"}, "fine"),
        ({"redis_version": "8.2.1"}, "fine"),
        ({"redis_version": "10.0"}, "fine"),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.0"}, "fine"),
        ({}, "unknown"),
        (None, "unknown"),
    ],
)
def test_redis_7_and_any_valkey_are_new_enough(info: dict[str, Any] | None, state: str) -> None:
    assert check_version(told(info)).state == state


@pytest.mark.parametrize(
    ("info", "config", "state"),
    [
        ({"aof_enabled": 1}, None, "fine"),
        ({"aof_enabled": 0}, None, "unknown"),
        (None, None, "unknown"),
        (None, {"appendonly": "yes", "appendfsync": "always"}, "fine"),
        (None, {"appendonly": "no", "save": ""}, "wrong"),
        ({"aof_enabled": 0}, {"appendonly": "no", "save": "3600 1"}, "warning"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, None, "wrong"),
    ],
)
def test_persistence_is_judged_from_whatever_may_be_read(
    info: dict[str, Any] | None, config: dict[str, str] | None, state: str
) -> None:
    finding = check_persistence(told(info, config))
    assert finding.state == state
    assert bool(finding.mend) == (state != "fine")


def test_the_memory_policy_is_read_from_info_or_config() -> None:
    assert check_memory(told({"maxmemory_policy": "noeviction"})).state == "fine"
    assert check_memory(told(None, {"maxmemory-policy": "volatile-ttl"})).state == "wrong"
    assert check_memory(told()).state == "unknown"


def test_a_sentinel_in_place_of_a_server_is_reported() -> None:
    finding = check_mode(told({"redis_mode": "sentinel"}), RedisSettings())
    assert (finding.state, "redis.sentinels" in finding.mend) == ("wrong", True)
    assert check_mode(told(), RedisSettings()).state == "unknown"
    assert check_role(told()).state == "unknown"


@pytest.mark.parametrize(("seconds", "state"), [(0.2, "fine"), (-4.9, "fine"), (6.0, "warning"), (-90.0, "warning")])
def test_clocks_that_differ_by_seconds_are_worth_a_warning(seconds: float, state: str) -> None:
    facts = NodeFacts(node="", info=None, config=None, skew=timedelta(seconds=seconds))
    assert check_clock(facts).state == state
    assert check_clock(told()).state == "unknown"


def test_shards_must_be_as_stored() -> None:
    assert check_shards(StoredShards(0, 0), RedisSettings(shards=4)).state == "fine"
    assert check_shards(StoredShards(4, 0), RedisSettings(shards=4)).state == "fine"
    assert check_shards(StoredShards(4, 0), RedisSettings(shards=1)).state == "wrong"
    assert check_shards(StoredShards(4, 8), RedisSettings(shards=4)).state == "wrong"
