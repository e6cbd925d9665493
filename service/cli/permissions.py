"""Which permissions the user lacks: every command that Knell sends is tried once, on keys made for it.
The server's own dry run would be shorter, but asks for the right to administer users."""

import secrets
from collections.abc import Iterator
from typing import Any, Final

from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from service.engine.connection import is_away
from service.engine.engine import Shard
from service.engine.installation import Installation

Command = tuple[Any, ...]

_LIFE_MS: Final = 60_000


def harmless(stem: str) -> Iterator[Command]:
    """One of every command that workers, scripts and this command line use, on keys that begin so."""
    text, table, names, scored, stream = (f"{stem}:{name}" for name in ("text", "hash", "set", "sorted", "stream"))
    group = (stream, "planners")
    yield from [
        ("SET", text, "1"), ("GET", text), ("EXISTS", text), ("PERSIST", text),
        ("HSET", table, "a", "1"), ("HSETNX", table, "a", "1"), ("HINCRBY", table, "a", 1),
        ("HGET", table, "a"), ("HMGET", table, "a"), ("HGETALL", table), ("HKEYS", table), ("HLEN", table),
        ("HSCAN", table, 0), ("HDEL", table, "b"),
        ("SADD", names, "a"), ("SMEMBERS", names), ("SREM", names, "b"),
        ("ZADD", scored, 1, "a"), ("ZSCORE", scored, "a"), ("ZMSCORE", scored, "a"), ("ZCARD", scored),
        ("ZCOUNT", scored, 0, 1), ("ZRANGE", scored, 0, 0), ("ZREVRANGE", scored, 0, 0),
        ("ZRANGEBYSCORE", scored, 0, 1), ("ZSCAN", scored, 0), ("ZREM", scored, "b"),
        ("ZREMRANGEBYSCORE", scored, 5, 6), ("ZREMRANGEBYRANK", scored, 5, 6),
        ("XADD", stream, "*", "a", "1"), ("XGROUP", "CREATE", *group, "0"), ("XLEN", stream),
        ("XINFO", "GROUPS", stream), ("XINFO", "CONSUMERS", *group), ("XRANGE", stream, "-", "+", "COUNT", 1),
        ("XREVRANGE", stream, "+", "-", "COUNT", 1), ("XREAD", "COUNT", 1, "STREAMS", stream, "0"),
        ("XREADGROUP", "GROUP", "planners", "doctor", "COUNT", 1, "STREAMS", stream, ">"),
        ("XPENDING", *group), ("XCLAIM", *group, "doctor", 0, "0-1", "JUSTID"),
        ("XACK", *group, "0-1"),
        ("XDEL", stream, "0-1"), ("XTRIM", stream, "MAXLEN", 100),
        ("XGROUP", "DELCONSUMER", *group, "doctor"),
        ("EVAL", "return 1", 1, text), ("EVALSHA", "0" * 40, 1, text), ("TIME",), ("INFO", "replication"),
        ("SCAN", 0, "COUNT", 1),
    ]  # fmt: skip
    for key in (text, table, names, scored, stream):
        # Should the last two be what is not allowed, nothing stays behind for long all the same.
        yield ("PEXPIRE", key, _LIFE_MS)
    for key in (text, table, names, scored, stream):
        yield ("UNLINK", key)
        yield ("DEL", key)


def spelt(command: Command) -> str:
    """A command as an access list names it: `xgroup|create`."""
    name = str(command[0]).lower()
    return f"{name}|{str(command[1]).lower()}" if name in ("xgroup", "xinfo") else name


async def lacking(installation: Installation, shard: Shard) -> list[str]:
    """The commands, as an access list names them, and `~pattern` where keys are out of reach."""
    found: list[str] = []
    pattern = f"~{installation.keys.prefix}:*"
    commands = list(harmless(f"{shard.stem}doctor:{secrets.token_hex(4)}"))
    commands.append(("HGET", installation.keys.budget("doctor/doctor"), "a"))
    for command in commands:
        try:
            await installation.connections.client.execute_command(*command)
        except NoPermissionError as error:
            word = spelt(command) if is_about_a_command(str(error)) else pattern
            if word not in found:
                found.append(word)
        except (OutOfMemoryError, ReadOnlyError):
            # Permissions come first: it may be asked, though it can't be done now.
            continue
        except ResponseError as error:
            # Whether it makes sense on such keys is not the question here, only whether it may be asked.
            if is_away(error):
                raise
    return found


def is_about_a_command(said: str) -> bool:
    """The server says of which kind the missing permission is, in words that differ a little by version."""
    return "to run the" in said
