"""The client of a single server, on the shortest way: no metrics, events or retries of the library around a command.
Nothing here tries a call again, and those who do know when; what a command costs in this process is mostly this way."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError


class DirectPool(BlockingConnectionPool):
    """A free connection is handed out at once; only who finds none waits as the library has it."""

    _waiting = 0

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AbstractConnection:
        del command_name, keys, options
        if not self._available_connections:
            self._waiting += 1
            try:
                found: AbstractConnection = await super().get_connection()  # type: ignore[no-untyped-call]
                return found
            finally:
                self._waiting -= 1
        connection = self._available_connections.pop()
        self._in_use_connections.add(connection)
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        if self._waiting:
            await super().release(connection)
            return
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)


class DirectRedis(Redis):
    async def execute_command(self, *args: Any, **options: Any) -> Any:
        pool = self.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.send_command(*args)
            return await self.parse_response(connection, args[0], **options)
        except (RedisError, OSError) as error:
            if not isinstance(error, ResponseError):
                await connection.disconnect()
            raise
        finally:
            await pool.release(connection)
