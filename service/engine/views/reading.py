"""How pictures are read: many small commands in one round trip, in pages, against the server's own clock.
Each batch stays on the keys of one shard or asks for one key at a time, so that a Cluster answers it, too."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from service.engine.calls import Caller
from service.engine.engine import Shard
from service.engine.installation import Installation

T = TypeVar("T")
Command = tuple[Any, ...]

PAGE: Final = 500
"""Members or records in one round trip."""


class StoredShards(NamedTuple):
    """What the data itself says: 0 where nothing is stored yet, or no move is under way."""

    kept: int
    moving_to: int


class Member(NamedTuple):
    """A member of a sorted set and its score, which is a time in milliseconds."""

    name: str
    score: float


async def batch(caller: Caller, commands: Sequence[Command]) -> list[Any]:
    """Send commands together. A stream or group that is not there is None, every other error is raised."""
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


async def records(caller: Caller, keys: Sequence[str]) -> list[dict[str, str]]:
    """Hashes, whole, in the order of their keys; empty where there is none."""
    found: list[dict[str, str]] = []
    for part in chunks(keys, PAGE):
        answers = await batch(caller, [("HGETALL", key) for key in part])
        found += [texts(answer) for answer in answers]
    return found


async def members(
    shard: Shard, name: str, low: str | float = "-inf", high: str | float = "+inf", *, page: int = PAGE
) -> AsyncIterator[list[Member]]:
    """A sorted set page by page, lowest first. What moves meanwhile may be missed or seen twice."""
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
    """The time as the scripts of this shard see it."""
    seconds, micros = await shard.caller.command("TIME", **await node_options(shard))
    return int(seconds) * 1000 + int(micros) // 1000 + shard.caller.offset_ms


async def node_options(shard: Shard) -> dict[str, Any]:
    """What sends a command without a key to the node that serves the shard."""
    client = shard.caller.client
    if not hasattr(client, "get_node_from_key"):
        return {}
    await client.initialize()
    return {"target_nodes": client.get_node_from_key(shard.stem + "meta")}


async def stored_shards(installation: Installation) -> StoredShards:
    """The first shard is there whatever the count is, so it is asked."""
    command = ("HMGET", installation.keys.of(0, "meta"), "shards", "resharding")
    ((count, moving),) = await batch(installation.caller, [command])
    return StoredShards(int(count or 0), int(moving or 0))


def text(raw: Any) -> str:
    """Whatever bytes are stored, as something that can be shown."""
    return raw.decode("utf-8", errors="backslashreplace") if isinstance(raw, bytes) else str(raw)


def texts(raw: dict[Any, Any] | None) -> dict[str, str]:
    return {text(name): text(value) for name, value in (raw or {}).items()}


def number(raw: Any, default: float = 0) -> float:
    """A stored number; a field that a person spoiled by hand counts as absent."""
    try:
        return float(raw)
    except (TypeError, ValueError):
        return default


def moment(raw: Any) -> datetime | None:
    """A stored time in milliseconds, if there is one."""
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
