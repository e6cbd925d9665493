"""Reader of the `stats` hashes of all shards, and of the lag of planners behind the events stream.
A read takes a bounded number of steps, however many lanes there are."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import ResponseError

from service.engine.clients import RedisClient
from service.engine.keys import Keys
from service.web.redis_probe import gather_or_cancel

GAUGES: Final = (
    "due", "queued", "leased", "held", "waiting", "aside", "newer", "open", "alone", "events", "paused",
    "guard_tripped",
)  # fmt: skip
COUNTERS: Final = (
    "published", "planned", "taken", "done", "gone", "dead", "check", "throttled", "blocked", "retry",
    "refused", "back", "reclaimed", "requeued", "set_aside", "abandoned", "kept", "lost",
    "planner_deaths",
)  # fmt: skip
GROUP: Final = "planners"
_MAX_SCANS: Final = 20
_SCAN_COUNT: Final = 1000
_MAX_COUNTED: Final = 10_000


@dataclass(slots=True)
class ShardStats:
    """`lag` is the number of events not yet delivered to a planner, `pending` that of delivered ones."""

    gauges: dict[str, float]
    counters: dict[str, float]
    oldest_ms: float
    surveyed_ms: float | None
    lag: int
    pending: int
    lanes: dict[str, dict[str, float]] = field(default_factory=dict)
    guards: dict[str, dict[str, float]] = field(default_factory=dict)
    relist: bool = False


async def read_shard_stats(client: RedisClient, keys: Keys) -> list[ShardStats]:
    return await gather_or_cancel(_read_shard(client, keys.stem(shard)) for shard in range(keys.shards))


async def _read_shard(client: RedisClient, stem: str) -> ShardStats:
    names = (*GAUGES, *COUNTERS, "oldest", "surveyed_at")
    reads: list[Coroutine[Any, Any, Any]] = [
        client.execute_command("HMGET", stem + "stats", *names),
        _server_ms(client, stem),
        client.execute_command("HGET", stem + "meta", "relist"),
        read_lag(client, stem + "events"),
        _read_named(client, stem + "stats", "lane"),
        _read_named(client, stem + "stats", "guard"),
    ]
    values, clock, relist, (lag, pending), lanes, guards = await gather_or_cancel(reads)
    stats = {name: float(value) for name, value in zip(names, values, strict=True) if value is not None}
    surveyed = stats.get("surveyed_at")
    return ShardStats(
        gauges={name: stats.get(name, 0.0) for name in GAUGES},
        counters={name: stats.get(name, 0.0) for name in COUNTERS},
        oldest_ms=stats.get("oldest", 0.0),
        surveyed_ms=None if surveyed is None else max(0.0, clock - surveyed),
        lag=lag,
        pending=pending,
        lanes=lanes,
        guards=guards,
        relist=relist is not None,
    )


async def _server_ms(client: RedisClient, stem: str) -> float:
    options: dict[str, Any] = {}
    if hasattr(client, "get_node_from_key"):
        await client.initialize()
        options["target_nodes"] = client.get_node_from_key(stem + "meta")
    answer = await client.execute_command("TIME", **options)
    seconds, micros = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return int(seconds) * 1000 + int(micros) / 1000


async def _read_named(client: RedisClient, stats: str, kind: str) -> dict[str, dict[str, float]]:
    """Statistics of every lane, or of every source's guard: name -> statistic -> value."""
    found: dict[str, dict[str, float]] = {}
    cursor = 0
    for _ in range(_MAX_SCANS):
        answer = await client.execute_command("HSCAN", stats, cursor, "MATCH", f"{kind}/*", "COUNT", _SCAN_COUNT)
        cursor, pairs = int(answer[0]), answer[1]
        for name, value in _pairs(pairs).items():
            one, _, statistic = name.decode().removeprefix(f"{kind}/").rpartition("/")
            found.setdefault(one, {})[statistic] = float(value)
        if cursor == 0:
            break
    return found


def _pairs(flat: Any) -> Mapping[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


async def read_lag(client: RedisClient, events: str) -> tuple[int, int]:
    """Entries not yet delivered, and delivered ones not yet acked. Redis reports no lag after an undelivered entry was
    deleted; the entries are then counted here, because an unknown lag is not zero."""
    try:
        groups = await client.execute_command("XINFO", "GROUPS", events)
    except ResponseError as error:
        if "no such key" in str(error):
            return 0, 0
        raise
    for raw in groups:
        facts = {_text(name): value for name, value in _pairs(raw).items()}
        if _text(facts["name"]) == GROUP:
            pending = int(facts["pending"])
            lag = facts.get("lag")
            return (int(lag) if lag is not None else await _count_undelivered(client, events, facts, pending)), pending
    # No consumer group yet: nothing was delivered.
    return int(await client.execute_command("XLEN", events)), 0


async def _count_undelivered(client: RedisClient, events: str, facts: Mapping[str, Any], pending: int) -> int:
    after = "(" + _text(facts["last-delivered-id"])
    ahead = await client.execute_command("XRANGE", events, after, "+", "COUNT", _MAX_COUNTED)
    if len(ahead) < _MAX_COUNTED:
        return len(ahead)
    # A delivered entry is either pending or deleted, so the rest of the stream is undelivered.
    return max(_MAX_COUNTED, int(await client.execute_command("XLEN", events)) - pending)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
