"""Redis clients of one process, with the same interface for a single server, Sentinel and Cluster.
Retries of the client library are off: `calls.py` retries."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider
from redis.exceptions import AuthenticationError

from service.engine.cluster_client import ClusterClient
from service.engine.connection import (
    SentinelConnection,
    SentinelTlsConnection,
    TcpConnection,
    TlsConnection,
    UnixSocketConnection,
)
from service.engine.errors import UNAVAILABLE, is_unavailable
from service.engine.sentinel_client import MasterFinder, SentinelClientPool
from service.engine.single_client import SingleServerClient, SingleServerPool
from service.settings import RedisSettings

__all__ = ["UNAVAILABLE", "PasswordFile", "RedisClient", "RedisClients", "is_unavailable"]

RedisClient: TypeAlias = Redis | RedisCluster

# More than any loop blocks for; see `RedisClients.blocking`.
LONGEST_BLOCK: Final = timedelta(seconds=30)


class RedisClients:
    """`client` is for ordinary calls, which wait for a free connection beyond max_connections. Responses are bytes, in
    the shapes of protocol 2, on every server."""

    def __init__(self, settings: RedisSettings, *, name: str = "knell") -> None:
        self.settings = settings
        self._name = name
        self._finder = _finder(settings) if settings.mode == "sentinel" else None
        self._blocking: list[RedisClient] = []
        self.client: RedisClient = self._build(settings.call_timeout, settings.max_connections)

    def blocking(self, longest: timedelta = LONGEST_BLOCK, *, connections: int = 1024) -> RedisClient:
        """A separate client for blocking reads of at most the given time, so that they never use a connection that an
        ordinary call needs. A hanging server is noticed after this time plus call_timeout."""
        client = self._build(longest + self.settings.call_timeout, connections)
        self._blocking.append(client)
        return client

    async def aclose(self) -> None:
        for client in (*self._blocking, self.client):
            await client.aclose()
        if self._finder is not None:
            await self._finder.aclose()

    def _build(self, timeout: timedelta, connections: int) -> RedisClient:
        settings = self.settings
        options = _options(settings, timeout)
        options["client_name"] = self._name
        options["credential_provider"] = _credentials(settings)
        # Waiting for a free connection is bounded by call_timeout, not by how long a read blocks.
        patience = settings.call_timeout
        if settings.mode == "cluster":
            return ClusterClient(settings.entry_nodes(), connections, patience, options | _tls(settings))
        options |= {
            "db": settings.url.db,
            "max_connections": connections,
            "timeout": patience.total_seconds(),
        }
        if self._finder is not None:
            managed = SentinelTlsConnection if settings.url.tls else SentinelConnection
            certificates = _certificates(settings) if settings.url.tls else {}
            master: Redis = self._finder.master_for(
                settings.sentinel_master,
                connection_pool_class=SentinelClientPool,
                connection_class=managed,
                **options,
                **certificates,
            )
            return master
        return SingleServerClient.from_pool(SingleServerPool(**options, **_address(settings)))


class PasswordFile(CredentialProvider):
    """Credential provider that reads the password file for every new connection, so that it can be rotated."""

    def __init__(self, username: str | None, path: Path) -> None:
        self._username = username
        self._path = path

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = self._path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            # With an OSError the library would leave the connection half open.
            raise AuthenticationError(f"the password file {self._path} cannot be read: {why}") from None
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return await asyncio.to_thread(self.get_credentials)


def _options(settings: RedisSettings, timeout: timedelta) -> dict[str, Any]:
    return {
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": settings.connect_timeout.total_seconds(),
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
        # Redis 7.0 does not know CLIENT SETINFO, which the library would send.
        "driver_info": None,
    }


def _credentials(settings: RedisSettings) -> CredentialProvider | None:
    username = settings.username or settings.url.username
    if settings.password_file is not None:
        return PasswordFile(username, settings.password_file)
    if settings.url.password is not None:
        return UsernamePasswordCredentialProvider(username, settings.url.password.reveal())
    return None


def _tls(settings: RedisSettings) -> dict[str, Any]:
    return {"ssl": True, **_certificates(settings)} if settings.url.tls else {}


def _certificates(settings: RedisSettings) -> dict[str, Any]:
    tls = settings.tls
    return {
        "ssl_ca_certs": str(tls.ca_file) if tls.ca_file else None,
        "ssl_certfile": str(tls.cert_file) if tls.cert_file else None,
        "ssl_keyfile": str(tls.key_file) if tls.key_file else None,
        "ssl_cert_reqs": "required" if tls.verify else "none",
        "ssl_check_hostname": tls.verify,
    }


def _address(settings: RedisSettings) -> dict[str, Any]:
    url = settings.url
    if url.scheme == "unix":
        return {"connection_class": UnixSocketConnection, "path": url.path}
    return {"host": url.host, "port": url.port, **_transport(settings)}


def _transport(settings: RedisSettings) -> dict[str, Any]:
    if settings.url.tls:
        return {"connection_class": TlsConnection, **_certificates(settings)}
    return {"connection_class": TcpConnection}


def _finder(settings: RedisSettings) -> MasterFinder:
    options = _options(settings, settings.call_timeout) | _transport(settings)
    options["timeout"] = settings.call_timeout.total_seconds()
    if settings.sentinel_password_file is not None:
        options["credential_provider"] = PasswordFile(settings.sentinel_username, settings.sentinel_password_file)
    return MasterFinder(settings.sentinels, options)
