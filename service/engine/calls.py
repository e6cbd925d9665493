"""Calling a move: one script, one round trip, the same request id however often it has to be sent.

A server that is away is waited for with a clear log line; what was asked is asked again and answered once.
"""

import asyncio
import itertools
import random
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import structlog
from redis.asyncio import RedisCluster
from redis.exceptions import NoScriptError

from service.engine.connection import Client, is_away
from service.engine.scripts import Scripts

log = structlog.get_logger(__name__)
_pack = msgspec.msgpack.Encoder().encode


class ServerAway(Exception):
    """The server did not answer within the time that the caller had."""


class Caller:
    """Sends moves to one installation's server."""

    def __init__(
        self,
        client: Client,
        *,
        scripts: Scripts | None = None,
        clock_offset: Callable[[], timedelta] = timedelta,
        patience: timedelta | None = None,
    ) -> None:
        self.client = client
        self._scripts = scripts or Scripts()
        self._offset = clock_offset
        self._patience = patience
        self._name = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self.away_since: float | None = None
        self.away_reason = ""
        self.on_return: list[Callable[[], None]] = []

    def request(self) -> str:
        """A name for one call, the same each time that call is sent."""
        return f"{self._name}.{next(self._numbers)}"

    @property
    def offset_ms(self) -> int:
        return int(self._offset() / timedelta(milliseconds=1))

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
        """Run a move until it is answered. `args` may be a function of what is true at the time of sending."""
        script, request = self._scripts[name], request or self.request()
        started, tries = time.monotonic(), 0
        limit = patience if patience is not None else self._patience
        while True:
            packed = _pack(args() if callable(args) else args)
            arguments = (1, key, stem, self.offset_ms, request, packed)
            try:
                try:
                    answer = await self.client.execute_command("EVALSHA", script.sha, *arguments)
                except NoScriptError:
                    answer = await self.client.execute_command("EVAL", script.source, *arguments)
            except Exception as error:
                if not is_away(error):
                    raise
                tries += 1
                self._lost(error)
                if limit is not None and time.monotonic() - started > limit.total_seconds():
                    raise ServerAway(f"no answer from the server within {limit}: {error}") from error
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**tries, 2.0))
            else:
                self._back()
                return bytes(answer)

    async def command(self, *command: Any, near: str | None = None, **options: Any) -> Any:
        """A plain command that may safely be sent twice, asked until it is answered.

        One without a key goes to the node that serves the key `near`: who that is may change from one try to the next.
        """
        tries = 0
        while True:
            try:
                if near is not None:
                    options |= await self._node_of(near)
                answer = await self.client.execute_command(*command, **options)
            except Exception as error:
                if not is_away(error):
                    raise
                tries += 1
                self._lost(error)
                if self._patience is not None and tries > 3:
                    raise ServerAway(f"no answer from the server: {error}") from error
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**tries, 2.0))
            else:
                self._back()
                return answer

    async def _node_of(self, key: str) -> dict[str, Any]:
        if not isinstance(self.client, RedisCluster):
            return {}
        await self.client.initialize()
        return {"target_nodes": self.client.get_node_from_key(key)}

    def _lost(self, error: Exception) -> None:
        self.away_reason = f"{type(error).__name__}: {error}"
        if self.away_since is None:
            self.away_since = time.monotonic()
            log.warning("server away, trying on", reason=self.away_reason)

    def _back(self) -> None:
        if self.away_since is not None:
            log.info("server back", away_for=round(time.monotonic() - self.away_since, 1))
            self.away_since, self.away_reason = None, ""
            for call in self.on_return:
                call()
