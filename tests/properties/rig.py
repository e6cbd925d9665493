"""Connections to a real server, one event loop, and a log of calls: what the state machines run on.

A machine's rules are plain functions; `run` runs a coroutine on the loop."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from service.engine.calls import RedisCaller
from service.engine.clients import RedisClient, RedisClients
from service.engine.keys import Keys
from service.engine.script_loading import Scripts
from service.settings import RedisSettings
from tests.properties.clock import JumpingClock

T = TypeVar("T")

PATIENCE = timedelta(minutes=5)
"""For one answer, on a busy machine."""


@dataclass(frozen=True, slots=True)
class RecordedMove:
    """One move that was made; `args` are what was sent."""

    name: str
    key: str
    stem: str
    args: Any
    request: str
    answer: bytes


class RecordingCaller(RedisCaller):
    """A caller that remembers every move, so that any of them can be sent again under its own name."""

    def __init__(self, client: RedisClient, clock: JumpingClock, scripts: Scripts | None = None) -> None:
        super().__init__(client, scripts=scripts, clock_offset=clock.offset)
        self.clock = clock
        self.calls: list[RecordedMove] = []

    async def move(
        self,
        name: str,
        key: str,
        stem: str,
        args: Any | Callable[[], Any],
        *,
        patience: timedelta | None = None,
        request: str | None = None,
    ) -> bytes:
        self.clock.tick()
        sent = args() if callable(args) else args
        request = request or self.request()
        answer = await super().move(name, key, stem, sent, patience=patience, request=request)
        self.calls.append(RecordedMove(name, key, stem, sent, request, answer))
        return answer

    async def again(self, call: RecordedMove) -> bytes:
        """The same call once more, as after an answer that got lost."""
        self.clock.tick()
        return await super().move(call.name, call.key, call.stem, call.args, request=call.request)


class Rig:
    """One server, seen from one process. Every example gets keys of its own and leaves none behind."""

    def __init__(self, settings: RedisSettings) -> None:
        # An example that fails for a slow answer would be told as one that differs from run to run.
        self.settings = msgspec.structs.replace(settings, call_timeout=PATIENCE, connect_timeout=PATIENCE)
        self._loop = asyncio.new_event_loop()
        self._connections = RedisClients(self.settings, name="properties")
        self._numbers = itertools.count(1)

    @property
    def client(self) -> RedisClient:
        return self._connections.client

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    def caller(self, clock: JumpingClock, scripts: Scripts | None = None) -> RecordingCaller:
        return RecordingCaller(self.client, clock, scripts)

    def keys(self) -> Keys:
        return Keys(f"example{next(self._numbers)}", self.settings.shards)

    def clear(self, *names: str) -> None:
        """Remove the keys of slots: each name is the beginning that all keys of one slot share."""
        for name in names:
            self.run(_clear(self.client, name))

    def close(self) -> None:
        self.run(self._connections.aclose())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.close()


_CLEAR = """
local found = redis.call('KEYS', ARGV[1] .. '*')
for first = 1, #found, 500 do redis.call('UNLINK', unpack(found, first, math.min(first + 499, #found))) end
return #found
"""


async def _clear(client: RedisClient, name: str) -> None:
    await client.execute_command("EVAL", _CLEAR, 1, name, name)
