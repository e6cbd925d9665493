"""Connections that obey a cancellation at once, also when it comes while a command is being sent.
The library sends through `asyncio.wait_for`, which in Python 3.11 starts a task for each command and can lose
a cancellation: a stopping worker would then sit out its blocking read."""

import asyncio
import builtins
from collections.abc import Iterable

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import TimeoutError as SilentError


class Prompt(AbstractConnection):
    """Bounds the sending itself, so that its parent, seeing no limit, sends without `wait_for`."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if not self.is_connected:
            # Before the limit is hidden: greeting the server reads answers, which are bounded by it, too.
            await self.connect_check_health(check_health=False)
        limit, self.socket_timeout = self.socket_timeout, None
        try:
            async with asyncio.timeout(limit):
                await super().send_packed_command(command, check_health)
        except builtins.TimeoutError:
            raise SilentError("Timeout writing to socket") from None
        finally:
            self.socket_timeout = limit


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
