"""The numbers that the shards keep in their `stats` hashes, and how far the planners lag behind the events.
Reads are bounded: however many lanes there are, one look takes a bounded number of steps."""

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import ResponseError

from service.engine.connection import Client
from service.engine.keys import Keys
from service.web.together import together

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
_STEPS: Final = 20
_STEP: Final = 1000
_MOST_COUNTED: Final = 10_000


@dataclass(slots=True)
class ShardNumbers:
    """One shard's. `lag` are events that no planner has been given yet, `pending` those that one has."""

    gauges: dict[str, float]
    counters: dict[str, float]
    oldest_ms: float
    surveyed_ms: float | None
    lag: int
    pending: int
    lanes: dict[str, dict[str, float]] = field(default_factory=dict)
    guards: dict[str, dict[str, float]] = field(default_factory=dict)
    relist: bool = False


async def read_numbers(client: Client, keys: Keys) -> list[ShardNumbers]:
    return await together(_read(client, keys.stem(shard)) for shard in range(keys.shards))


async def _read(client: Client, stem: str) -> ShardNumbers:
    names = (*GAUGES, *COUNTERS, "oldest", "surveyed_at")
    reads: list[Coroutine[Any, Any, Any]] = [
        client.execute_command("HMGET", stem + "stats", *names),
        _server_ms(client, stem),
        client.execute_command("HGET", stem + "meta", "relist"),
        read_lag(client, stem + "events"),
        _read_named(client, stem + "stats", "lane"),
        _read_named(client, stem + "stats", "guard"),
    ]
    values, clock, relist, (lag, pending), lanes, guards = await together(reads)
    stats = {name: float(value) for name, value in zip(names, values, strict=True) if value is not None}
    surveyed = stats.get("surveyed_at")
    return ShardNumbers(
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


async def _server_ms(client: Client, stem: str) -> float:
    options: dict[str, Any] = {}
    if hasattr(client, "get_node_from_key"):
        await client.initialize()
        options["target_nodes"] = client.get_node_from_key(stem + "meta")
    answer = await client.execute_command("TIME", **options)
    seconds, micros = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return int(seconds) * 1000 + int(micros) / 1000


async def _read_named(client: Client, stats: str, kind: str) -> dict[str, dict[str, float]]:
    """The numbers of every lane or of every source's guard: name -> number's name -> value."""
    found: dict[str, dict[str, float]] = {}
    cursor = 0
    for _ in range(_STEPS):
        answer = await client.execute_command("HSCAN", stats, cursor, "MATCH", f"{kind}/*", "COUNT", _STEP)
        cursor, pairs = int(answer[0]), answer[1]
        for name, value in _pairs(pairs).items():
            one, _, number = name.decode().removeprefix(f"{kind}/").rpartition("/")
            found.setdefault(one, {})[number] = float(value)
        if cursor == 0:
            break
    return found


def _pairs(flat: Any) -> Mapping[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


async def read_lag(client: Client, events: str) -> tuple[int, int]:
    """Entries not yet delivered, and delivered ones not yet acked. The server gives up counting the first
    once an entry ahead of the group was deleted; then they are counted here: unknown is not none."""
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
            return (int(lag) if lag is not None else await _count(client, events, facts, pending)), pending
    # Nobody has ever read: all of it is ahead.
    return int(await client.execute_command("XLEN", events)), 0


async def _count(client: Client, events: str, facts: Mapping[str, Any], pending: int) -> int:
    after = "(" + _text(facts["last-delivered-id"])
    ahead = await client.execute_command("XRANGE", events, after, "+", "COUNT", _MOST_COUNTED)
    if len(ahead) < _MOST_COUNTED:
        return len(ahead)
    # What was delivered is either pending or deleted, so the rest of the stream is ahead.
    return max(_MOST_COUNTED, int(await client.execute_command("XLEN", events)) - pending)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
