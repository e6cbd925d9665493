"""What a server must be like for Knell, judged from what it told about itself.
Pure: facts go in, findings come out; each says what is missing and how to mend it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from service.engine.views.reading import StoredShards
from service.settings import RedisSettings

State = Literal["fine", "warning", "wrong", "unknown"]

OLDEST_REDIS: Final = (7, 0)
MOST_SKEW: Final = timedelta(seconds=5)
_FULL: Final = 0.9


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`unknown` means that the server does not let us look."""

    check: str
    state: State
    what: str
    mend: str = ""
    node: str = ""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one server said; None where it refused to say."""

    node: str
    info: dict[str, Any] | None
    config: dict[str, str] | None
    skew: timedelta | None = None


def check_version(facts: NodeFacts) -> Finding:
    info = facts.info
    if info is None:
        return _closed("version", facts, "the server's version", "info")
    if str(info.get("server_name", "")) == "valkey" or "valkey_version" in info:
        return _fine("version", facts, f"Valkey {info.get('valkey_version', '')}".strip())
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not numbers:
        return Finding(check="version", state="unknown", what="the server names no version", node=facts.node)
    if numbers < OLDEST_REDIS:
        return Finding(
            check="version",
            state="wrong",
            what=f"Redis {version} is too old",
            mend="use Redis 7.0 or later, or Valkey",
            node=facts.node,
        )
    return _fine("version", facts, f"Redis {version}")


def check_mode(facts: NodeFacts, settings: RedisSettings) -> Finding:
    """A server that is asked in the wrong way answers some calls and refuses others, amid the work."""
    if facts.info is None:
        return _closed("mode", facts, "whether it is a Cluster", "info")
    mode = str(facts.info.get("redis_mode", facts.info.get("server_mode", "standalone")))
    wanted = "cluster" if settings.mode == "cluster" else "standalone"
    if mode == wanted:
        return _fine("mode", facts, f"{mode}, as redis.mode {settings.mode} expects")
    mend = {
        "cluster": "set redis.mode (KNELL_REDIS_MODE) to cluster",
        "sentinel": "set redis.mode to sentinel and name this address in redis.sentinels",
    }.get(mode, "set redis.mode (KNELL_REDIS_MODE) to single")
    what = f"the server runs as {mode}, but redis.mode says {settings.mode}"
    return Finding(check="mode", state="wrong", what=what, mend=mend, node=facts.node)


def check_role(facts: NodeFacts) -> Finding:
    if facts.info is None:
        return _closed("role", facts, "whether it is a replica", "info")
    if facts.info.get("role") == "slave":
        return Finding(
            check="role",
            state="wrong",
            what="the server is a replica and takes no writes",
            mend="let redis.url name the primary, or use Sentinel (redis.mode sentinel)",
            node=facts.node,
        )
    return _fine("role", facts, "the server takes writes")


def check_persistence(facts: NodeFacts) -> Finding:
    info, config = facts.info or {}, facts.config
    aof = info.get("aof_enabled")
    if aof is None and config is not None:
        aof = int(config.get("appendonly") == "yes")
    if aof == 1:
        return _aof(facts, info)
    if aof is None or config is None:
        what = "can't tell whether anything is written to disk: CONFIG is forbidden"
        mend = "see to it that the provider of the server keeps its data on disk, best with appendonly yes"
        return Finding(check="persistence", state="unknown", what=what, mend=mend, node=facts.node)
    if config.get("save", ""):
        return Finding(
            check="persistence",
            state="warning",
            what=f"only snapshots (save {config['save']}): a crash loses everything since the last one",
            mend="CONFIG SET appendonly yes, and the same in the server's configuration file",
            node=facts.node,
        )
    return Finding(
        check="persistence",
        state="wrong",
        what="nothing is written to disk: a restart loses every event, job, wait and audit entry; objects "
        "with a finalizer come back by a relist, all others only by a sweep",
        mend="CONFIG SET appendonly yes, and the same in the server's configuration file",
        node=facts.node,
    )


def _aof(facts: NodeFacts, info: Mapping[str, Any]) -> Finding:
    if info.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            check="persistence",
            state="wrong",
            what="the last write to the append-only file failed",
            mend="look at the server's log; most often its disk is full",
            node=facts.node,
        )
    fsync = (facts.config or {}).get("appendfsync")
    loss = {"always": "; a crash loses nothing", "everysec": "; a crash loses about a second"}
    if fsync == "no":
        return Finding(
            check="persistence",
            state="warning",
            what="append-only file with appendfsync no: a crash loses what the system had not written yet",
            mend="CONFIG SET appendfsync everysec",
            node=facts.node,
        )
    words = f", appendfsync {fsync}{loss.get(fsync, '')}" if fsync else ""
    return _fine("persistence", facts, f"append-only file{words}")


def check_memory(facts: NodeFacts) -> Finding:
    info, config = facts.info or {}, facts.config or {}
    policy = info.get("maxmemory_policy") or config.get("maxmemory-policy")
    if policy is None:
        return _closed("memory", facts, "the policy for a full memory", "info")
    if policy != "noeviction":
        return Finding(
            check="memory",
            state="wrong",
            what=f"maxmemory-policy is {policy}: a full server would throw jobs away without a word",
            mend="CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration file",
            node=facts.node,
        )
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if most and used >= most:
        return Finding(
            check="memory",
            state="wrong",
            what="all of maxmemory is used: the server takes no more work, and none that is there can move on",
            mend="raise maxmemory, then shorten retention.finished and retention.audit",
            node=facts.node,
        )
    if most and used > _FULL * most:
        return Finding(
            check="memory",
            state="warning",
            what=f"noeviction, but {used / most:.0%} of maxmemory is used; a full server takes no more work",
            mend="raise maxmemory, or shorten retention.finished and retention.audit",
            node=facts.node,
        )
    return _fine("memory", facts, "noeviction")


def check_clock(facts: NodeFacts) -> Finding:
    """Only the server's clock counts, so a difference spoils no wait; it makes times hard to compare."""
    if facts.skew is None:
        return _closed("clock", facts, "the server's time", "time")
    seconds = facts.skew.total_seconds()
    if abs(facts.skew) > MOST_SKEW:
        return Finding(
            check="clock",
            state="warning",
            what=f"the server's clock and the one here differ by {seconds:.1f} s",
            mend="set both by NTP; waits are kept by the server's clock, but times in logs will not match",
            node=facts.node,
        )
    return _fine("clock", facts, f"{abs(seconds) * 1000:.0f} ms apart from here")


def check_shards(stored: StoredShards, settings: RedisSettings) -> Finding:
    if stored.moving_to:
        return Finding(
            check="shards",
            state="wrong",
            what=f"a move to {stored.moving_to} shards was begun and is not finished",
            mend=f"wait, or run `knell reshard --to {stored.moving_to}` again with all workers stopped",
        )
    if not stored.kept:
        return Finding(check="shards", state="fine", what=f"nothing is stored yet, {settings.shards} will be")
    if stored.kept != settings.shards:
        return Finding(
            check="shards",
            state="wrong",
            what=f"the data is kept in {stored.kept} shards, but redis.shards says {settings.shards}",
            mend=f"set redis.shards (KNELL_REDIS_SHARDS) to {stored.kept}, or stop all workers and run "
            f"`knell reshard --to {settings.shards}`",
        )
    return Finding(check="shards", state="fine", what=f"{stored.kept}, as redis.shards says")


def check_permissions(lacking: list[str]) -> Finding:
    if not lacking:
        return Finding(check="permissions", state="fine", what="every command that is needed may be run")
    commands = [word for word in lacking if not word.startswith("~")]
    patterns = [word for word in lacking if word.startswith("~")]
    parts = []
    if commands:
        parts.append(f"the user may not run {', '.join(commands)}")
    if patterns:
        parts.append(f"the user may not use all keys {', '.join(word[1:] for word in patterns)}")
    grants = " ".join([*patterns, *(f"+{word}" for word in commands)])
    return Finding(
        check="permissions",
        state="wrong",
        what="; ".join(parts),
        mend=f"ACL SETUSER <user> {grants}, then ACL SAVE",
    )


def _fine(check: str, facts: NodeFacts, what: str) -> Finding:
    return Finding(check=check, state="fine", what=what, node=facts.node)


def _closed(check: str, facts: NodeFacts, what: str, command: str) -> Finding:
    return Finding(
        check=check,
        state="unknown",
        what=f"can't tell {what}: {command.upper()} is forbidden or not answered",
        mend=f"ACL SETUSER <user> +{command}, or look on the server itself",
        node=facts.node,
    )
