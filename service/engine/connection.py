"""Connection classes of redis-py that can be cancelled while a command is being sent.
The library sends through `asyncio.wait_for`, which in Python 3.11 starts a task for each command and can lose a
cancellation: a stopping worker would then wait until its blocking read ends."""

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
"""Bytes; half of the high-water mark of a transport."""


class CancellableConnection(AbstractConnection):
    """Applies the timeout itself and hides it from its parent, which then sends without `wait_for`. Health checks are
    not allowed: their responses would be read while the timeout is hidden."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.health_check_interval:
            raise ValueError("health_check_interval must be 0: a health check would wait for its answer without limit")

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if not self.is_connected:
            # Before the timeout is hidden: the handshake reads responses, which need it.
            await self.connect_check_health(check_health=False)
        limit, self.socket_timeout = self.socket_timeout, None
        try:
            # A small command never waits, since everything sent before it has been answered. A timeout would add a
            # sixth to the cost of a command.
            if isinstance(command, list) and sum(map(len, command)) <= _SMALL:
                await super().send_packed_command(command, check_health)
            else:
                async with asyncio.timeout(limit):
                    await super().send_packed_command(command, check_health)
        except builtins.TimeoutError:
            raise SilentError("Timeout writing to socket") from None
        except AttributeError as error:
            # A closed TLS transport of asyncio raises AttributeError instead of OSError. It is a lost connection all
            # the same, which the parent has closed.
            if error.obj is not None or _raised_by(error) != "asyncio.sslproto":
                raise
            raise UnreachableError(f"Connection closed by server ({error}).") from None
        finally:
            self.socket_timeout = limit


def _raised_by(error: BaseException) -> str:
    """The name of the module that raised the error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", ""))


class TcpConnection(CancellableConnection, Connection):
    pass


class TlsConnection(CancellableConnection, SSLConnection):
    pass


class UnixSocketConnection(CancellableConnection, UnixDomainSocketConnection):
    pass


class SentinelConnection(CancellableConnection, SentinelManagedConnection):
    pass


class SentinelTlsConnection(CancellableConnection, SentinelManagedSSLConnection):
    pass
