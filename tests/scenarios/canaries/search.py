"""Search for canaries in everything that Knell writes: Redis, logs, objects in the cluster, command output."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import redis

from tests.kube import Kube

LISTS = (
    "/api/v1/events", "/apis/events.k8s.io/v1/events", "/api/v1/configmaps", "/apis/coordination.k8s.io/v1/leases",
)  # fmt: skip


def in_redis(client: "redis.Redis") -> Iterator[tuple[str, bytes]]:
    """Every key, with all that is in it. `client` must not decode."""
    for key in client.scan_iter(count=1000):
        yield f"Redis key {key!r}", key + b" " + _value(client, key)


def _value(client: "redis.Redis", key: bytes) -> bytes:
    kind = bytes(client.type(key))  # type: ignore[arg-type]  # the client does not decode
    reads: dict[bytes, Any] = {
        b"string": lambda: client.get(key),
        b"hash": lambda: client.hgetall(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"list": lambda: client.lrange(key, 0, -1),
        b"stream": lambda: client.xrange(key),
    }
    # One that ended between two commands has no kind.
    return b" ".join(_flat(reads[kind]())) if kind != b"none" else b""


def _flat(value: object) -> Iterator[bytes]:
    match value:
        case bytes():
            yield value
        case Mapping():
            for pair in value.items():
                yield from _flat(pair)
        case list() | tuple() | set():
            for one in value:
                yield from _flat(one)


def in_cluster(kube: Kube, *paths: str) -> Iterator[tuple[str, bytes]]:
    """Events, ConfigMaps, Leases, and the objects at these paths with their conditions."""
    for path in (*LISTS, *paths):
        found = kube.get(path)
        for one in (found or {}).get("items", ()):
            yield f"{path} {one['metadata']['name']}", msgspec.json.encode(one)


def leaks(places: Sequence[tuple[str, bytes]], wanted: Mapping[str, tuple[bytes, ...]]) -> list[str]:
    """Which canary shows where, and what stands around it there."""
    found: list[str] = []
    for where, text in places:
        for name, shapes in wanted.items():
            at = next((text.find(shape) for shape in shapes if shape in text), -1)
            if at >= 0:
                found.append(f"{name} in {where}: ...{text[max(0, at - 160) : at + 60].decode(errors='replace')}...")
    return found
