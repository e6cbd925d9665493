"""Checks of the Redis servers: version, mode, role, persistence, memory, clock, permissions, scripts and shard count.
`check_redis` reads what they need; the other checks are pure functions of what a server reported."""

import re
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from redis.exceptions import NoPermissionError, ResponseError

from service.cli import output, session
from service.cli.doctor.redis_permissions import missing_permissions
from service.contract.checks import CheckResult
from service.engine.batch_reads import StoredShards, node_options, stored_shards
from service.engine.clients import is_unavailable
from service.engine.installation import Installation
from service.engine.shard import Shard
from service.settings import RedisSettings

OLDEST_REDIS: Final = (7, 0)
MAX_SKEW: Final = timedelta(seconds=5)
_FULL: Final = 0.9


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Replies of one server; None where it refused the command."""

    node: str
    info: dict[str, Any] | None
    config: dict[str, str] | None
    skew: timedelta | None = None


async def check_redis(installation: Installation) -> AsyncIterator[CheckResult]:
    """Stops after a failed check that makes the others pointless."""
    settings = installation.settings.redis
    try:
        await installation.connections.client.execute_command("PING")
        yield CheckResult(check="reachable", state="fine", what="it answers")
    except NoPermissionError:
        yield CheckResult(check="reachable", state="fine", what="it answers, though not to PING")
    except Exception as error:
        words = session.explain_redis_error(error, settings)
        if words is None:
            raise
        what, _, mend = words.rpartition("; ")
        yield CheckResult(check="reachable", state="wrong", what=what or mend, mend=mend if what else "")
        return
    try:
        async for result in _check_nodes(installation, settings):
            yield result
    except Exception as error:
        words = session.explain_redis_error(error, settings)
        if words is None:
            raise
        yield CheckResult(check="the rest", state="wrong", what=words, mend="mend what stands above, then look again")


async def _check_nodes(installation: Installation, settings: RedisSettings) -> AsyncIterator[CheckResult]:
    mode_fits = True
    for facts in await _read_nodes(installation):
        yield check_version(facts)
        mode = check_mode(facts, settings)
        mode_fits &= mode.state != "wrong"
        yield mode
        yield check_role(facts)
        yield check_persistence(facts)
        yield check_memory(facts)
        yield check_clock(facts)
    if not mode_fits:
        return
    missing = await missing_permissions(installation, installation.shards[0])
    yield check_permissions(missing)
    if "eval" not in missing:
        yield await _check_scripting(installation)
    if not {"hmget", "hget"} & set(missing) and not any(word.startswith("~") for word in missing):
        yield check_shards(await stored_shards(installation), settings)


async def _check_scripting(installation: Installation) -> CheckResult:
    """The scripts need Lua and two codecs, cmsgpack and cjson."""
    key = installation.keys.of(0, "meta")
    script = "return {type(cmsgpack) == 'table' and 1 or 0, type(cjson) == 'table' and 1 or 0}"
    try:
        answer = await installation.connections.client.execute_command("EVAL", script, 1, key)
    except ResponseError as error:
        if is_unavailable(error):
            raise
        answer, said = [0, 0], output.clean(error)
    else:
        said = "a codec is missing"
    if list(answer) == [1, 1]:
        return CheckResult(check="scripts", state="fine", what="Lua with cmsgpack and cjson")
    return CheckResult(
        check="scripts",
        state="wrong",
        what=f"Lua scripts can't be run as needed: {said}",
        mend="use a server with EVAL and the cmsgpack and cjson libraries, as Redis and Valkey have them",
    )


async def _read_nodes(installation: Installation) -> list[NodeFacts]:
    """One entry for each server that holds a shard."""
    found: dict[str, NodeFacts] = {}
    for shard in installation.shards:
        options = await node_options(shard)
        node = options.get("target_nodes")
        name = f"{node.host}:{node.port}" if node is not None else ""
        if name not in found:
            found[name] = await _read_node(shard, name, options)
    return list(found.values())


async def _read_node(shard: Shard, name: str, options: dict[str, Any]) -> NodeFacts:
    info = await _command_or_none(shard, "INFO", **options)
    config = await _command_or_none(
        shard, "CONFIG GET", "appendonly", "save", "appendfsync", "maxmemory-policy", **options
    )
    before = time.time()
    clock = await _command_or_none(shard, "TIME", **options)
    skew = None
    if clock is not None:
        middle = (before + time.time()) / 2
        skew = timedelta(seconds=int(clock[0]) + int(clock[1]) / 1e6 - middle)
    return NodeFacts(node=name, info=info, config=config, skew=skew)


async def _command_or_none(shard: Shard, *command: Any, **options: Any) -> Any:
    """None where the server refuses the command, as managed servers do with some."""
    try:
        return await shard.caller.command(*command, **options)
    except ResponseError as error:
        if is_unavailable(error):
            raise
        return None


def check_version(facts: NodeFacts) -> CheckResult:
    info = facts.info
    if info is None:
        return _unknown("version", facts, "the server's version", "info")
    if str(info.get("server_name", "")) == "valkey" or "valkey_version" in info:
        return _fine("version", facts, f"Valkey {info.get('valkey_version', '')}".strip())
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not numbers:
        return CheckResult(check="version", state="unknown", what="the server names no version", node=facts.node)
    if numbers < OLDEST_REDIS:
        return CheckResult(
            check="version",
            state="wrong",
            what=f"Redis {version} is too old",
            mend="use Redis 7.0 or later, or Valkey",
            node=facts.node,
        )
    return _fine("version", facts, f"Redis {version}")


def check_mode(facts: NodeFacts, settings: RedisSettings) -> CheckResult:
    """A client in the wrong mode gets replies to some calls and errors for others."""
    if facts.info is None:
        return _unknown("mode", facts, "whether it is a Cluster", "info")
    mode = str(facts.info.get("redis_mode", facts.info.get("server_mode", "standalone")))
    wanted = "cluster" if settings.mode == "cluster" else "standalone"
    if mode == wanted:
        return _fine("mode", facts, f"{mode}, as redis.mode {settings.mode} expects")
    mend = {
        "cluster": "set redis.mode (KNELL_REDIS_MODE) to cluster",
        "sentinel": "set redis.mode to sentinel and name this address in redis.sentinels",
    }.get(mode, "set redis.mode (KNELL_REDIS_MODE) to single")
    what = f"the server runs as {mode}, but redis.mode says {settings.mode}"
    return CheckResult(check="mode", state="wrong", what=what, mend=mend, node=facts.node)


def check_role(facts: NodeFacts) -> CheckResult:
    if facts.info is None:
        return _unknown("role", facts, "whether it is a replica", "info")
    if facts.info.get("role") == "slave":
        return CheckResult(
            check="role",
            state="wrong",
            what="the server is a replica and takes no writes",
            mend="let redis.url name the primary, or use Sentinel (redis.mode sentinel)",
            node=facts.node,
        )
    return _fine("role", facts, "the server takes writes")


def check_persistence(facts: NodeFacts) -> CheckResult:
    info, config = facts.info or {}, facts.config
    aof = info.get("aof_enabled")
    if aof is None and config is not None:
        aof = int(config.get("appendonly") == "yes")
    if aof == 1:
        return _check_aof(facts, info)
    if aof is None or config is None:
        what = "can't tell whether anything is written to disk: CONFIG is forbidden"
        mend = "see to it that the provider of the server keeps its data on disk, best with appendonly yes"
        return CheckResult(check="persistence", state="unknown", what=what, mend=mend, node=facts.node)
    if config.get("save", ""):
        return CheckResult(
            check="persistence",
            state="warning",
            what=f"only snapshots (save {config['save']}): a crash loses everything since the last one",
            mend="CONFIG SET appendonly yes, and the same in the server's configuration file",
            node=facts.node,
        )
    return CheckResult(
        check="persistence",
        state="wrong",
        what="nothing is written to disk: a restart loses every event, job, wait and audit entry; objects "
        "with a finalizer come back by a relist, all others only by a sweep",
        mend="CONFIG SET appendonly yes, and the same in the server's configuration file",
        node=facts.node,
    )


def _check_aof(facts: NodeFacts, info: Mapping[str, Any]) -> CheckResult:
    if info.get("aof_last_write_status", "ok") != "ok":
        return CheckResult(
            check="persistence",
            state="wrong",
            what="the last write to the append-only file failed",
            mend="look at the server's log; most often its disk is full",
            node=facts.node,
        )
    fsync = (facts.config or {}).get("appendfsync")
    loss = {"always": "; a crash loses nothing", "everysec": "; a crash loses about a second"}
    if fsync == "no":
        return CheckResult(
            check="persistence",
            state="warning",
            what="append-only file with appendfsync no: a crash loses what the system had not written yet",
            mend="CONFIG SET appendfsync everysec",
            node=facts.node,
        )
    words = f", appendfsync {fsync}{loss.get(fsync, '')}" if fsync else ""
    return _fine("persistence", facts, f"append-only file{words}")


def check_memory(facts: NodeFacts) -> CheckResult:
    info, config = facts.info or {}, facts.config or {}
    policy = info.get("maxmemory_policy") or config.get("maxmemory-policy")
    if policy is None:
        return _unknown("memory", facts, "the policy for a full memory", "info")
    if policy != "noeviction":
        return CheckResult(
            check="memory",
            state="wrong",
            what=f"maxmemory-policy is {policy}: a full server would throw jobs away without a word",
            mend="CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration file",
            node=facts.node,
        )
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if most and used >= most:
        return CheckResult(
            check="memory",
            state="wrong",
            what="all of maxmemory is used: the server takes no more work, and none that is there can move on",
            mend="raise maxmemory, then shorten retention.finished and retention.audit",
            node=facts.node,
        )
    if most and used > _FULL * most:
        return CheckResult(
            check="memory",
            state="warning",
            what=f"noeviction, but {used / most:.0%} of maxmemory is used; a full server takes no more work",
            mend="raise maxmemory, or shorten retention.finished and retention.audit",
            node=facts.node,
        )
    return _fine("memory", facts, "noeviction")


def check_clock(facts: NodeFacts) -> CheckResult:
    """Waits go by the server's clock alone; a difference only makes times in logs hard to compare."""
    if facts.skew is None:
        return _unknown("clock", facts, "the server's time", "time")
    seconds = facts.skew.total_seconds()
    if abs(facts.skew) > MAX_SKEW:
        return CheckResult(
            check="clock",
            state="warning",
            what=f"the server's clock and the one here differ by {seconds:.1f} s",
            mend="set both by NTP; waits are kept by the server's clock, but times in logs will not match",
            node=facts.node,
        )
    return _fine("clock", facts, f"{abs(seconds) * 1000:.0f} ms apart from here")


def check_shards(stored: StoredShards, settings: RedisSettings) -> CheckResult:
    if stored.moving_to:
        return CheckResult(
            check="shards",
            state="wrong",
            what=f"a move to {stored.moving_to} shards was begun and is not finished",
            mend=f"wait, or run `knell reshard --to {stored.moving_to}` again with all workers stopped",
        )
    if not stored.kept:
        return CheckResult(check="shards", state="fine", what=f"nothing is stored yet, {settings.shards} will be")
    if stored.kept != settings.shards:
        return CheckResult(
            check="shards",
            state="wrong",
            what=f"the data is kept in {stored.kept} shards, but redis.shards says {settings.shards}",
            mend=f"set redis.shards (KNELL_REDIS_SHARDS) to {stored.kept}, or stop all workers and run "
            f"`knell reshard --to {settings.shards}`",
        )
    return CheckResult(check="shards", state="fine", what=f"{stored.kept}, as redis.shards says")


def check_permissions(lacking: list[str]) -> CheckResult:
    if not lacking:
        return CheckResult(check="permissions", state="fine", what="every command that is needed may be run")
    commands = [word for word in lacking if not word.startswith("~")]
    patterns = [word for word in lacking if word.startswith("~")]
    parts = []
    if commands:
        parts.append(f"the user may not run {', '.join(commands)}")
    if patterns:
        parts.append(f"the user may not use all keys {', '.join(word[1:] for word in patterns)}")
    grants = " ".join([*patterns, *(f"+{word}" for word in commands)])
    return CheckResult(
        check="permissions",
        state="wrong",
        what="; ".join(parts),
        mend=f"ACL SETUSER <user> {grants}, then ACL SAVE",
    )


def _fine(check: str, facts: NodeFacts, what: str) -> CheckResult:
    return CheckResult(check=check, state="fine", what=what, node=facts.node)


def _unknown(check: str, facts: NodeFacts, what: str, command: str) -> CheckResult:
    return CheckResult(
        check=check,
        state="unknown",
        what=f"can't tell {what}: {command.upper()} is forbidden or not answered",
        mend=f"ACL SETUSER <user> +{command}, or look on the server itself",
        node=facts.node,
    )
