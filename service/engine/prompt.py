"""Connections that obey a cancellation at once, also when it comes while a command is being sent.
The library sends through `asyncio.wait_for`, which in Python 3.11 starts a task for each command and can lose
a cancellation: a stopping worker would then sit out its blocking read."""

import asyncio
import builtins
import traceback
from collections.abc import Iterable
from typing import Any, Final

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import TimeoutError as SilentError

_SMALL: Final = 32 * 1024
"""Bytes; half of what a transport takes before it asks to wait."""


class Prompt(AbstractConnection):
    """Bounds the sending itself, so that its parent, seeing no limit, sends without `wait_for`. There are no health
    checks: their answers would be read while the limit is hidden."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.health_check_interval:
            raise ValueError("health_check_interval must be 0: a health check would wait for its answer without limit")

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if not self.is_connected:
            # Before the limit is hidden: greeting the server reads answers, which are bounded by it, too.
            await self.connect_check_health(check_health=False)
        limit, self.socket_timeout = self.socket_timeout, None
        try:
            # A small command has nothing to wait for: what was sent before it has been answered. A timeout for each
            # would add a sixth to what a command costs.
            if isinstance(command, list) and sum(map(len, command)) <= _SMALL:
                await super().send_packed_command(command, check_health)
            else:
                async with asyncio.timeout(limit):
                    await super().send_packed_command(command, check_health)
        except builtins.TimeoutError:
            raise SilentError("Timeout writing to socket") from None
        except AttributeError as error:
            # A closed TLS transport of asyncio has no transport below it any more: no OSError, but a lost connection
            # all the same. The parent has closed it.
            if error.obj is not None or _raised_by(error) != "asyncio.sslproto":
                raise
            raise UnreachableError(f"Connection closed by server ({error}).") from None
        finally:
            self.socket_timeout = limit


def _raised_by(error: BaseException) -> str:
    """The name of the module that raised it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", ""))


class PromptConnection(Prompt, Connection):
    pass


class PromptTlsConnection(Prompt, SSLConnection):
    pass


class PromptSocketConnection(Prompt, UnixDomainSocketConnection):
    pass


class PromptMasterConnection(Prompt, SentinelManagedConnection):
    pass


class PromptTlsMasterConnection(Prompt, SentinelManagedSSLConnection):
    pass
