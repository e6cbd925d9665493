"""Settings of the Redis server: single, Sentinel or Cluster, with TLS, user and password file.
URLs are parsed here, so that a password in one is never passed on as part of a text."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from service.durations import Positive

DEFAULT_PORT = 6379


class Secret:
    """A credential that only `reveal` returns: repr, str and codecs hide it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class HostPort:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        """Raises ValueError. An IPv6 address is written as `[::1]:6379`."""
        host, colon, port = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        name = host[1:-1] if bracketed else host
        if not colon or not name or (":" in name and not bracketed) or any(sign in name for sign in "/@ "):
            raise ValueError("not host:port")
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError("not a port")
        return cls(name, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL. Its text has neither user nor password."""

    scheme: Literal["redis", "rediss", "unix"]
    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    db: int = 0
    username: str | None = None
    password: Secret | None = field(default=None)

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Raises ValueError. The message quotes nothing of the text, because it may contain a password."""
        try:
            parts = urlsplit(text.strip())
            port = parts.port
        except ValueError:
            raise ValueError("the host or the port cannot be read") from None
        if parts.fragment:
            raise ValueError("it holds a #; signs with a meaning must be escaped (%23)")
        username = unquote(parts.username) if parts.username else None
        password = Secret(unquote(parts.password)) if parts.password else None
        if parts.scheme == "unix":
            if parts.hostname or not parts.path.strip("/"):
                raise ValueError("a socket is written as unix:///path/to/socket")
            db = _db_of_query(parts.query)
            return cls("unix", path=unquote(parts.path), db=db, username=username, password=password)
        scheme: Literal["redis", "rediss"] = "rediss" if parts.scheme == "rediss" else "redis"
        if scheme != parts.scheme:
            raise ValueError("it does not begin with redis://, rediss:// or unix://")
        if not parts.hostname:
            raise ValueError("the host is missing")
        number = parts.path.strip("/")
        db = _db(number) if number else _db_of_query(parts.query)
        if number and parts.query:
            raise ValueError("a number of the database and options stand side by side")
        return cls(
            scheme,
            host=parts.hostname,
            port=port if port is not None else DEFAULT_PORT,
            db=db,
            username=username,
            password=password,
        )

    @property
    def tls(self) -> bool:
        return self.scheme == "rediss"

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}?db={self.db}"
        return f"{self.scheme}://{HostPort(self.host, self.port)}/{self.db}"


def _db(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("the number of the database is no number")
    return int(text)


def _db_of_query(query: str) -> int:
    # Redis clients accept timeouts, TLS options and even passwords here. Each of these is a setting of its own.
    options = parse_qs(query, keep_blank_values=True)
    if set(options) - {"db"}:
        raise ValueError("the only option it may carry is db")
    return _db(options["db"][-1]) if options else 0


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Used when the url begins with rediss://."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """With Sentinel and Cluster, too, the url determines TLS, user and password."""

    url: RedisUrl = RedisUrl("redis", host="127.0.0.1")
    mode: Literal["single", "sentinel", "cluster"] = "single"
    sentinels: tuple[HostPort, ...] = ()
    sentinel_master: str = "mymaster"
    sentinel_username: str | None = None
    sentinel_password_file: Path | None = None
    nodes: tuple[HostPort, ...] = ()
    username: str | None = None
    password_file: Path | None = None
    tls: TlsSettings = TlsSettings()
    prefix: Annotated[
        str, msgspec.Meta(pattern=r"\A[^{}\s]+\Z", description="a text without white space or braces")
    ] = "knell"
    shards: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    call_timeout: Positive = timedelta(seconds=5)
    connect_timeout: Positive = timedelta(seconds=5)
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 64

    def described(self) -> str:
        """One line for logs and errors, without user and password."""
        match self.mode:
            case "single":
                return f"{self.url} (single)"
            case "sentinel":
                scheme = "rediss" if self.url.tls else "redis"
                where = ",".join(map(str, self.sentinels))
                return f"{scheme}://{where}/{self.url.db} (sentinel, master {self.sentinel_master})"
            case "cluster":
                scheme = "rediss" if self.url.tls else "redis"
                return f"{scheme}://{','.join(map(str, self.entry_nodes()))} (cluster)"

    def entry_nodes(self) -> tuple[HostPort, ...]:
        """The nodes for the discovery of a cluster."""
        return self.nodes or (HostPort(self.url.host, self.url.port),)

    def contradictions(self) -> list[tuple[str, str]]:
        """Contradictions between values, as pairs of path and reason."""
        found = []
        if self.mode == "sentinel" and not self.sentinels:
            found.append(("redis.sentinels", "mode sentinel needs at least one host:port here"))
        if self.mode != "sentinel" and self.sentinels:
            found.append(("redis.sentinels", f"sentinels are named, but redis.mode is {self.mode}"))
        if self.mode != "cluster" and self.nodes:
            found.append(("redis.nodes", f"cluster nodes are named, but redis.mode is {self.mode}"))
        if self.mode != "single" and self.url.scheme == "unix":
            found.append(("redis.url", f"mode {self.mode} cannot use a unix socket"))
        if self.mode == "cluster" and self.url.db:
            found.append(("redis.url", f"a cluster has only database 0, not {self.url.db}"))
        if self.url.password is not None and self.password_file is not None:
            found.append(("redis.password_file", "the url already holds a password; give one of the two"))
        if self.url.username is not None and self.username is not None and self.url.username != self.username:
            found.append(("redis.username", "the url names another user; give one of the two"))
        if (self.username or self.url.username) and not (self.url.password or self.password_file):
            found.append(("redis.username", "a user without a password; give redis.password_file"))
        if self.sentinel_username is not None and self.sentinel_password_file is None:
            found.append(("redis.sentinel_username", "a user without a password; give sentinel_password_file"))
        if (self.tls.cert_file is None) != (self.tls.key_file is None):
            found.append(("redis.tls", "cert_file and key_file are given together or not at all"))
        if self.tls != TlsSettings() and not self.url.tls:
            found.append(("redis.tls", "TLS is set up, but redis.url does not begin with rediss://"))
        return found
