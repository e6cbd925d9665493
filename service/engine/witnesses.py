"""Witnesses in Redis: the last value of the counter on each Lease, and which clusters were restored from a backup.

Both are plain hashes in the first shard. The value follows the one in the cluster and is never ahead of it, so whoever
reads it first and the cluster afterwards finds a lower value there only if the cluster went back.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.engine.installation import Installation
from service.engine.inventory import ask
from service.engine.views.reading import text

_COMMAND: Final = "`knell clusters accept-restore "


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """The counter on the Lease with this uid, as it was last written."""

    v: int
    value: int
    uid: str
    at: int = 0


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """`why` is empty once a person has accepted it, at `at`."""

    v: int
    why: str = ""
    at: int = 0


class Look(NamedTuple):
    """One look at Redis. `raw` is the cluster's record as it is stored; of the Leases only those with a record are
    here, None for one that can't be read."""

    restored: str
    raw: str
    noted: dict[str, Noted | None]


_restored: Final = msgspec.json.Decoder(Restored).decode
_noted: Final = msgspec.json.Decoder(Noted).decode
_encode: Final = msgspec.json.Encoder().encode
_answered: Final = msgspec.msgpack.Decoder(list[int]).decode


def until_accepted(cluster: str, why: str) -> str:
    """Why the absence of objects of this cluster does not count, and the command by which a person changes that."""
    return f"{why}; nothing that is missing there counts as deleted until {_COMMAND}{cluster}`"


def is_until_accepted(reason: str) -> bool:
    """Whether something is held for that reason."""
    return _COMMAND in reason


class Witnesses:
    """Of one installation. A Lease is known by NAMESPACE/NAME in the cluster of a uid."""

    def __init__(self, installation: Installation) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, "witnesses")
        self.restored_key = installation.keys.of(0, "restored")

    async def look(self, cluster: str, leases: Sequence[str] = ()) -> Look:
        commands: list[tuple[str, ...]] = [("HGET", self.restored_key, cluster)]
        if leases:
            commands.append(("HMGET", self.key, *(f"{cluster}/{lease}" for lease in leases)))
        raw, *rest = await ask(self._installation, commands)
        found = dict(zip(leases, rest[0] if rest else (), strict=True))
        stored = "" if raw is None else text(raw)
        noted = {lease: _readable(one) for lease, one in found.items() if one is not None}
        return Look(_why(stored), stored, noted)

    async def note(self, cluster: str, lease: str, uid: str, value: int) -> None:
        """After the cluster has it. A value that is not higher changes nothing."""
        await self._move("witness", [f"{cluster}/{lease}", uid, value])

    async def suspect(self, cluster: str, seen: str, why: str) -> bool:
        """`seen` is the cluster's record from before the look at the cluster; False where it is another one by now."""
        return bool(_answered(await self._move("restored", [cluster, seen, why, ""]))[0])

    async def restored(self) -> dict[str, Restored]:
        """By uid, the clusters that wait for a person."""
        answer = await self._caller.command("HGETALL", self.restored_key)
        found = {text(uid): _decided(text(raw)) for uid, raw in answer.items()}
        return {uid: one for uid, one in found.items() if one.why}

    # ---- a person's word

    async def replace(self, cluster: str, lease: str, noted: Noted | None) -> None:
        """What the Lease is from now on; None for one that there is no more."""
        field = f"{cluster}/{lease}"
        if noted is None:
            await self._caller.command("HDEL", self.key, field)
        else:
            await self._caller.command("HSET", self.key, field, _encode(noted))

    async def accept(self, cluster: str, seen: str, who: str) -> bool:
        """Last of all: whoever looks from now on finds Leases and records that agree. False where the record is another
        one than `seen` by now."""
        return bool(_answered(await self._move("restored", [cluster, seen, "", who]))[0])

    async def _move(self, name: str, args: list[str | int]) -> bytes:
        shard = self._installation.shards[0]
        return await self._caller.move(name, shard.stem + "meta", shard.stem, args)


def _readable(raw: bytes) -> Noted | None:
    try:
        found = _noted(raw)
    except msgspec.DecodeError:
        return None
    return found if found.v <= VERSION else None


def _why(raw: str) -> str:
    return _decided(raw).why if raw else ""


def _decided(raw: str) -> Restored:
    """One that can't be read holds."""
    try:
        found = _restored(raw)
    except msgspec.DecodeError:
        return Restored(v=VERSION, why="whether the cluster was restored from a backup can't be read in Redis")
    return found
