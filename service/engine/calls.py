"""Calls of scripts and commands with retries while the server is unavailable.

A script call keeps its request id over all retries, so that it takes effect once.
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

from service.engine.clients import RedisClient, is_unavailable
from service.engine.script_loading import Scripts

log = structlog.get_logger(__name__)
_pack = msgspec.msgpack.Encoder().encode


class ServerUnavailable(Exception):
    """The server did not answer within the caller's time limit."""


class RedisCaller:
    """Sends scripts and commands to the server of one installation."""

    def __init__(
        self,
        client: RedisClient,
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
        self.unavailable_since: float | None = None
        self.unavailable_reason = ""
        self.on_available: list[Callable[[], None]] = []

    def request(self) -> str:
        """A new request id."""
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
        """Runs a script until it is answered. `args` may be a function that is called right before each sending."""
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
                if not is_unavailable(error):
                    raise
                tries += 1
                self._lost(error)
                if limit is not None and time.monotonic() - started > limit.total_seconds():
                    raise ServerUnavailable(f"no answer from the server within {limit}: {error}") from error
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**tries, 2.0))
            else:
                self._back()
                return bytes(answer)

    async def command(self, *command: Any, near: str | None = None, **options: Any) -> Any:
        """Sends an idempotent command until it is answered.

        A command without a key goes to the node that serves the key `near`, which may change from one try to the next.
        """
        tries = 0
        while True:
            try:
                if near is not None:
                    options |= await self._node_of(near)
                answer = await self.client.execute_command(*command, **options)
            except Exception as error:
                if not is_unavailable(error):
                    raise
                tries += 1
                self._lost(error)
                if self._patience is not None and tries > 3:
                    raise ServerUnavailable(f"no answer from the server: {error}") from error
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
        self.unavailable_reason = f"{type(error).__name__}: {error}"
        if self.unavailable_since is None:
            self.unavailable_since = time.monotonic()
            log.warning("server unavailable, retrying", reason=self.unavailable_reason)

    def _back(self) -> None:
        if self.unavailable_since is not None:
            log.info("server available again", unavailable_for=round(time.monotonic() - self.unavailable_since, 1))
            self.unavailable_since, self.unavailable_reason = None, ""
            for call in self.on_available:
                call()
