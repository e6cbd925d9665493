"""Counting the commands that reach a server: what clients send, and apart from it what scripts call.
On a real server, because only it knows what its stream of commands looks like."""

from collections.abc import Iterator

import pytest
import redis

from bench.command_monitor import CommandMonitor
from standins.redis_servers import LocalRedis

pytestmark = pytest.mark.long


@pytest.fixture
def server() -> Iterator[LocalRedis]:
    with LocalRedis(appendonly=False) as running:
        yield running


def test_calls_inside_a_script_are_counted_apart_from_what_was_sent(server: LocalRedis) -> None:
    with CommandMonitor(server.port) as watch, redis.Redis(port=server.port) as client:
        for _ in range(10):
            client.eval("for n = 1, 5 do redis.call('INCR', KEYS[1]) end", 1, "counter")
        pipeline = client.pipeline(transaction=True)
        for _ in range(4):
            pipeline.incr("other")
        pipeline.execute()
        watch.finish()
    assert watch.inside == 50
    assert watch.sent == 10 + 4 + len(["MULTI", "EXEC"])


def test_opening_connections_does_not_count(server: LocalRedis) -> None:
    with CommandMonitor(server.port) as watch:
        for _ in range(3):
            with redis.Redis(port=server.port) as client:
                client.set("key", 'a value with "quotes"\r\n+1.0 [0 lua] "GET"')
        watch.finish()
    assert (watch.sent, watch.inside) == (3, 0)
