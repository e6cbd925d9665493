"""Store of the last counter value of each Lease, and of the clusters that were restored from a backup.

Both are plain hashes in the first shard. A value here follows the one in the cluster and is never ahead of it. So if
this one is read first and the cluster's is lower, the cluster was restored.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.engine.batch_reads import text
from service.engine.installation import Installation
from service.engine.inventory import send_until_answered

_COMMAND: Final = "`knell clusters accept-restore "


class StoredCounter(msgspec.Struct, frozen=True, kw_only=True):
    """The counter on the Lease with this uid, as last written."""

    v: int
    value: int
    uid: str
    at: int = 0


class RestoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`why` is empty once an operator has accepted the restore, at `at`."""

    v: int
    why: str = ""
    at: int = 0


class StoredCounters(NamedTuple):
    """Counters of one cluster. `reason` is why it counts as restored, `record` that record as it is stored. `counters`
    has only Leases with a value, None for one that can't be decoded."""

    reason: str
    record: str
    counters: dict[str, StoredCounter | None]


_restored: Final = msgspec.json.Decoder(RestoreRecord).decode
_noted: Final = msgspec.json.Decoder(StoredCounter).decode
_encode: Final = msgspec.json.Encoder().encode
_answered: Final = msgspec.msgpack.Decoder(list[int]).decode


def restore_reason(cluster: str, why: str) -> str:
    """Why the absence of objects of this cluster does not count, and the command that accepts the restore."""
    return f"{why}; nothing that is missing there counts as deleted until {_COMMAND}{cluster}`"


def is_restore_reason(reason: str) -> bool:
    """Whether a reason was made by `restore_reason`."""
    return _COMMAND in reason


class LeaseCounterStore:
    """A Lease is identified by the cluster's uid and NAMESPACE/NAME."""

    def __init__(self, installation: Installation) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, "witnesses")
        self.restored_key = installation.keys.of(0, "restored")

    async def read(self, cluster: str, leases: Sequence[str] = ()) -> StoredCounters:
        commands: list[tuple[str, ...]] = [("HGET", self.restored_key, cluster)]
        if leases:
            commands.append(("HMGET", self.key, *(f"{cluster}/{lease}" for lease in leases)))
        raw, *rest = await send_until_answered(self._installation, commands)
        found = dict(zip(leases, rest[0] if rest else (), strict=True))
        stored = "" if raw is None else text(raw)
        noted = {lease: _readable(one) for lease, one in found.items() if one is not None}
        return StoredCounters(_why(stored), stored, noted)

    async def save(self, cluster: str, lease: str, uid: str, value: int) -> None:
        """Called after the value was written to the cluster. A value that is not higher changes nothing."""
        await self._move("save_lease_counter", [f"{cluster}/{lease}", uid, value])

    async def mark_restored(self, cluster: str, seen: str, why: str) -> bool:
        """`seen` is the record from before the cluster was read; False where the record has changed since."""
        return bool(_answered(await self._move("save_restore", [cluster, seen, why, ""]))[0])

    async def restored_clusters(self) -> dict[str, RestoreRecord]:
        """The clusters that wait for an operator, by uid."""
        answer = await self._caller.command("HGETALL", self.restored_key)
        found = {text(uid): _decided(text(raw)) for uid, raw in answer.items()}
        return {uid: one for uid, one in found.items() if one.why}

    # ---- decisions of operators

    async def replace(self, cluster: str, lease: str, counter: StoredCounter | None) -> None:
        """Sets the expected counter of a Lease; None removes it."""
        field = f"{cluster}/{lease}"
        if counter is None:
            await self._caller.command("HDEL", self.key, field)
        else:
            await self._caller.command("HSET", self.key, field, _encode(counter))

    async def accept(self, cluster: str, seen: str, who: str) -> bool:
        """The last step of accepting a restore, after Leases and counters were made to agree. False where the record
        has changed since `seen`."""
        return bool(_answered(await self._move("save_restore", [cluster, seen, "", who]))[0])

    async def _move(self, name: str, args: list[str | int]) -> bytes:
        shard = self._installation.shards[0]
        return await self._caller.move(name, shard.stem + "meta", shard.stem, args)


def _readable(raw: bytes) -> StoredCounter | None:
    try:
        found = _noted(raw)
    except msgspec.DecodeError:
        return None
    return found if found.v <= VERSION else None


def _why(raw: str) -> str:
    return _decided(raw).why if raw else ""


def _decided(raw: str) -> RestoreRecord:
    """A record that can't be decoded counts as restored."""
    try:
        found = _restored(raw)
    except msgspec.DecodeError:
        return RestoreRecord(v=VERSION, why="whether the cluster was restored from a backup can't be read in Redis")
    return found
