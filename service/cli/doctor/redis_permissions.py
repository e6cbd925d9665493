"""Probe of Redis permissions: runs every command that Knell uses once, on temporary keys.
`ACL DRYRUN` would be shorter, but needs the permission to administer users."""

import secrets
from collections.abc import Iterator
from typing import Any, Final

from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError

from service.engine.clients import is_unavailable
from service.engine.installation import Installation
from service.engine.shard import Shard

Command = tuple[Any, ...]

_LIFE_MS: Final = 60_000


def probe_commands(stem: str) -> Iterator[Command]:
    """Every command that workers, scripts and the command line use, on keys that begin with `stem`."""
    text, table, names, scored, stream = (f"{stem}:{name}" for name in ("text", "hash", "set", "sorted", "stream"))
    group = (stream, "planners")
    yield from [
        ("SET", text, "1"), ("GET", text), ("EXISTS", text), ("PERSIST", text),
        ("HSET", table, "a", "1"), ("HSETNX", table, "a", "1"), ("HEXISTS", table, "a"), ("HINCRBY", table, "a", 1),
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
        # Keys expire even if the user may not delete them.
        yield ("PEXPIRE", key, _LIFE_MS)
    for key in (text, table, names, scored, stream):
        yield ("UNLINK", key)
        yield ("DEL", key)


def acl_name(command: Command) -> str:
    """A command in ACL notation: `xgroup|create`."""
    name = str(command[0]).lower()
    return f"{name}|{str(command[1]).lower()}" if name in ("xgroup", "xinfo") else name


async def missing_permissions(installation: Installation, shard: Shard) -> list[str]:
    """Commands in ACL notation, and `~pattern` if keys can't be accessed."""
    found: list[str] = []
    pattern = f"~{installation.keys.prefix}:*"
    commands = list(probe_commands(f"{shard.stem}doctor:{secrets.token_hex(4)}"))
    commands.append(("HGET", installation.keys.budget("doctor/doctor"), "a"))
    for command in commands:
        try:
            await installation.connections.client.execute_command(*command)
        except NoPermissionError as error:
            word = acl_name(command) if concerns_a_command(str(error)) else pattern
            if word not in found:
                found.append(word)
        except (OutOfMemoryError, ReadOnlyError):
            # The server checks permissions first, so this command is allowed.
            continue
        except ResponseError as error:
            # Any other error means that the command is allowed.
            if is_unavailable(error):
                raise
    return found


def concerns_a_command(said: str) -> bool:
    """Whether the error is about the command and not about the key; its wording differs by version."""
    return "to run the" in said
