"""Batched and paged reads: many small commands in one round trip, and the server's clock.
The keys of a batch are those of one shard, or each command has one key, so that a Cluster can serve it."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from service.engine.calls import RedisCaller
from service.engine.installation import Installation
from service.engine.shard import Shard

T = TypeVar("T")
Command = tuple[Any, ...]

PAGE: Final = 500
"""Members or records in one round trip."""


class StoredShards(NamedTuple):
    """The stored shard count and the target of a reshard under way; 0 where there is none."""

    kept: int
    moving_to: int


class Member(NamedTuple):
    """A member of a sorted set and its score, which is a time in milliseconds."""

    name: str
    score: float


async def batch(caller: RedisCaller, commands: Sequence[Command]) -> list[Any]:
    """Sends commands together. The answer for a missing stream or group is None; every other error is raised."""
    if not commands:
        return []
    pipeline = caller.client.pipeline(transaction=False)
    for command in commands:
        options = {"withscores": True} if command[-1] == "WITHSCORES" else {}
        pipeline.execute_command(*command, **options)
    answers = await pipeline.execute(raise_on_error=False)
    for position, answer in enumerate(answers):
        if isinstance(answer, ResponseError) and "no such key" in str(answer):
            answers[position] = None
        elif isinstance(answer, Exception):
            raise answer
    return list(answers)


async def records(caller: RedisCaller, keys: Sequence[str]) -> list[dict[str, str]]:
    """Whole hashes in the order of their keys; a missing one is empty."""
    found: list[dict[str, str]] = []
    for part in chunks(keys, PAGE):
        answers = await batch(caller, [("HGETALL", key) for key in part])
        found += [texts(answer) for answer in answers]
    return found


async def members(
    shard: Shard, name: str, low: str | float = "-inf", high: str | float = "+inf", *, page: int = PAGE
) -> AsyncIterator[list[Member]]:
    """A sorted set in pages, lowest score first. Members that move meanwhile may be missed or repeated."""
    offset = 0
    while True:
        command = ("ZRANGEBYSCORE", shard.stem + name, low, high, "LIMIT", offset, page, "WITHSCORES")
        (answer,) = await batch(shard.caller, [command])
        if not answer:
            return
        yield [Member(text(member), score) for member, score in answer]
        if len(answer) < page:
            return
        offset += page


async def server_ms(shard: Shard) -> int:
    """The server's time as the scripts of this shard see it, in milliseconds."""
    seconds, micros = await shard.caller.command("TIME", **await node_options(shard))
    return int(seconds) * 1000 + int(micros) // 1000 + shard.caller.offset_ms


async def node_options(shard: Shard) -> dict[str, Any]:
    """Options that send a command without a key to the node that serves the shard."""
    client = shard.caller.client
    if not hasattr(client, "get_node_from_key"):
        return {}
    await client.initialize()
    return {"target_nodes": client.get_node_from_key(shard.stem + "meta")}


async def stored_shards(installation: Installation) -> StoredShards:
    """Read from the first shard, which exists whatever the count is."""
    command = ("HMGET", installation.keys.of(0, "meta"), "shards", "resharding")
    ((count, moving),) = await batch(installation.caller, [command])
    return StoredShards(int(count or 0), int(moving or 0))


def text(raw: Any) -> str:
    """Stored bytes as printable text."""
    return raw.decode("utf-8", errors="backslashreplace") if isinstance(raw, bytes) else str(raw)


def texts(raw: dict[Any, Any] | None) -> dict[str, str]:
    return {text(name): text(value) for name, value in (raw or {}).items()}


def number(raw: Any, default: float = 0) -> float:
    """A stored number, or the default where it is missing or invalid."""
    try:
        return float(raw)
    except (TypeError, ValueError):
        return default


def to_datetime(raw: Any) -> datetime | None:
    """A stored time in milliseconds as a datetime; None where it is missing or invalid."""
    stored = number(raw)
    if not 0 < stored < 1e14:
        return None
    return datetime.fromtimestamp(stored / 1000, UTC)


def age(since: float | None, now: int) -> timedelta | None:
    return None if since is None else timedelta(milliseconds=max(0.0, now - since))


def chunks(things: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(things)
    while part := list(islice(iterator, size)):
        yield part
