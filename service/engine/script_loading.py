"""Loader of the Lua scripts: one file per move, combined with the shared files that it needs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

BUDGET_MOVES = frozenset({"reserve", "return_tokens", "correct"})
ENDING_MOVES = frozenset({"abandon", "withdraw"})
DEATH_MOVES = frozenset({"reclaim", "claim"})
APPEND_MOVES = frozenset({"append", "repair"})
HEARTBEAT_MOVES = frozenset({"renew", "reclaim"})


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    sha: str


@lru_cache
def _text(name: str) -> str:
    return (files("service.engine") / "scripts" / f"{name}.lua").read_text(encoding="utf-8")


class Scripts:
    """All scripts by name. `changed` replaces the text of files, with which tests plant faults."""

    def __init__(self, changed: Mapping[str, str] | None = None) -> None:
        self.changed = dict(changed or {})
        self._built: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        script = self._built.get(name)
        if script is None:
            shared = ["_budget" if name in BUDGET_MOVES else "_shard"]
            if name in ENDING_MOVES:
                shared.append("_end_job")
            if name in APPEND_MOVES:
                shared.append("_append")
            if name in DEATH_MOVES:
                shared.append("_death_storm")
            if name in HEARTBEAT_MOVES:
                shared.append("_heartbeats")
            parts = ("_move", *shared, name)
            source = "\n".join(self.changed.get(part) or _text(part) for part in parts)
            script = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
            self._built[name] = script
        return script


def lua_text(name: str) -> str:
    return _text(name)
