"""Connections that obey a cancellation at once, also when it comes while a command is being sent.
The library sends through `asyncio.wait_for`, which in Python 3.11 starts a task for each command and can lose
a cancellation: a stopping worker would then sit out its blocking read."""

import asyncio
import builtins
from collections.abc import Iterable
from typing import Final

from redis.asyncio import Connection, SSLConnection
from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import ConnectionError as UnreachableError
from redis.exceptions import TimeoutError as SilentError

_SMALL: Final = 32 * 1024
"""Bytes; half of what a transport takes before it asks to wait."""


class Prompt(AbstractConnection):
    """Bounds the sending itself, so that its parent, seeing no limit, sends without `wait_for`."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if isinstance(command, list) and self._takes_at_once(command):
            return
        if not self.is_connected:
            # Before the limit is hidden: greeting the server reads answers, which are bounded by it, too.
            await self.connect_check_health(check_health=False)
        if self._writer is not None and self._writer.transport.is_closing():
            # A TLS transport that is over may have let go of what it stood on: writing to it is no OSError then.
            await self.disconnect(nowait=True)
            raise UnreachableError("Connection closed by server.")
        limit, self.socket_timeout = self.socket_timeout, None
        try:
            async with asyncio.timeout(limit):
                await super().send_packed_command(command, check_health)
        except builtins.TimeoutError:
            raise SilentError("Timeout writing to socket") from None
        finally:
            self.socket_timeout = limit

    def _takes_at_once(self, command: list[bytes]) -> bool:
        """Whether it was sent: a small command on a connection on which nothing is under way has nothing to wait for,
        and whether it arrives is told by its answer."""
        writer = self._writer
        if writer is None or not self.is_connected or self.health_check_interval or writer.transport.is_closing():
            return False
        if sum(map(len, command)) > _SMALL or writer.transport.get_write_buffer_size():
            return False
        writer.writelines(command)
        return True


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
