"""Inventory of a source: the state of its watch, and a record for each observed object.

An observed object no longer exists when its deletion is planned, so that the record is all that is known about it. The
data is in the first shard, in plain hashes; every write is idempotent.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.contract.errors import Undecodable
from service.engine.batch_reads import Command, batch, server_ms, text, texts
from service.engine.errors import is_unavailable
from service.engine.installation import Installation
from service.settings.sources import ORPHANS

STEP: Final = 500
"""Records in one round trip."""
_ERA: Final = "era:"
_FEWEST: Final = 1_000_000_000_000
"""List numbers begin at the time at which the source's state was created, in milliseconds."""


class InventoryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observed object. `seen` is the number of the last list that contained it, `scope` what was watched then.

    `gone` is when its absence was proven, 0 while it exists. `held` says why its absence is not accepted yet, `fault`
    why its resources can't be identified, and `kept` why its resources stay, so that sweeps ignore them.
    `namespace_annotations` are the annotations of its Namespace as read at `namespace_at`; None: never read."""

    v: int
    name: str
    namespace: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    data: str = ""
    scope: str = ""
    seen: int = 0
    at: int = 0
    gone: int = 0
    held: str = ""
    fault: str = ""
    kept: str = ""
    namespace_annotations: dict[str, str] | None = None
    namespace_at: int = 0


class DeletionRound(NamedTuple):
    """The number of an object's current deletion, and the object's namespace."""

    number: int
    namespace: str


class NamespaceAnnotations(msgspec.Struct, frozen=True):
    """The annotations of a Namespace that policy reads, and when they were read."""

    annotations: dict[str, str]
    at: int


_decode = msgspec.json.Decoder(type=InventoryRecord).decode
_decode_marks = msgspec.json.Decoder(type=NamespaceAnnotations).decode
_encode = msgspec.json.Encoder().encode


def decode_inventory_record(raw: bytes | str) -> InventoryRecord:
    """Raises Undecodable."""
    try:
        found = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the inventory's record can't be read: {error}") from None
    if found.v > VERSION:
        raise Undecodable(f"the inventory's record has version {found.v}, newer than this process knows")
    return found


async def send_until_answered(installation: Installation, commands: Sequence[Command]) -> list[Any]:
    """Sends idempotent commands in one round trip until they are answered."""
    while True:
        try:
            return await batch(installation.caller, commands)
        except Exception as error:
            if not is_unavailable(error):
                raise
            # A plain command waits, with a log line, until the server is available.
            await installation.caller.command("EXISTS", commands[0][1])
            await asyncio.sleep(random.uniform(0.01, 0.1))


async def end_undeclared_sources(installation: Installation, declared: Iterable[str]) -> list[str]:
    """Ends the scopes of sources that are no longer declared; returns their names."""
    known = await installation.caller.command("SMEMBERS", _declared_key(installation))
    removed = sorted({text(name) for name in known} - set(declared))
    for name in removed:
        await Inventory(installation, name).end_scope()
    return removed


def _declared_key(installation: Installation) -> str:
    return installation.keys.of(0, "sources")


class Inventory:
    def __init__(self, installation: Installation, source: str) -> None:
        self.installation, self.source = installation, source
        self._caller = installation.caller
        self.state_key = installation.keys.of(0, f"source:{source}")
        self.records_key = installation.keys.of(0, f"inventory:{source}")
        self.rounds_key = installation.keys.of(0, f"rounds:{source}")
        self.marks_key = installation.keys.of(0, f"namespaces:{source}")
        self.dropped_key = installation.keys.of(0, f"dropped:{source}")
        self._swept = [installation.keys.of(0, name) for name in (f"orphans:{source}", f"source:{source}{ORPHANS}")]

    # ---- state of the watch

    async def state(self) -> dict[str, str]:
        return texts(_flat(await self._caller.command("HGETALL", self.state_key)))

    async def save_state(self, fields: Mapping[str, str | int]) -> None:
        if fields:
            await self._caller.command("HSET", self.state_key, *_pairs(fields))

    async def clear_state(self, *fields: str) -> None:
        if fields:
            await self._caller.command("HDEL", self.state_key, *fields)

    async def next_number(self) -> int:
        """The number of a new list. Numbers may be skipped, but must never repeat."""
        number = int(await self._caller.command("HINCRBY", self.state_key, "number", 1))
        if number > _FEWEST:
            return number
        # The state is new, or was lost while records with high numbers may still exist: begin above all of them.
        now = await server_ms(self.installation.shards[0])
        return int(await self._caller.command("HINCRBY", self.state_key, "number", now))

    async def begin_epoch(self) -> None:
        """Writes a random epoch unless there is one. A changed epoch shows that Redis was emptied."""
        await self._caller.command("HSETNX", self.state_key, "epoch", secrets.token_hex(8))

    async def begin_scope(self, scope: str, facts: Mapping[str, str]) -> str:
        """An id for the watched scope, the same for all replicas, and a new one each time that a scope is used again:
        objects recorded under it before may have been deleted unobserved."""
        mine = f"{_ERA}{scope}"
        await self._end_scopes(facts, mine)
        await self._caller.command("SADD", _declared_key(self.installation), self.source)
        await self._caller.command("HSETNX", self.state_key, mine, secrets.token_hex(4))
        return f"{scope}.{text(await self._caller.command('HGET', self.state_key, mine))}"

    async def end_scope(self) -> None:
        """Ends the watch of this source: if it is declared again, the old records prove nothing."""
        await self._end_scopes(await self.state())
        await self._caller.command("SREM", _declared_key(self.installation), self.source)

    async def _end_scopes(self, facts: Mapping[str, str], but: str = "") -> None:
        await self.clear_state(*(field for field in facts if field.startswith(_ERA) and field != but))

    async def server_ms(self) -> int:
        return await server_ms(self.installation.shards[0])

    async def relist_signals(self) -> list[str]:
        """The epoch, and the times of the last relist request and of the last accepted restore. The watcher lists again
        when any of them changes."""
        found = await self._caller.command("HMGET", self.state_key, "epoch", "relist", "accepted")
        return [text(one) if one is not None else "" for one in found]

    # ---- observed objects

    async def save(self, records: Mapping[str, InventoryRecord]) -> None:
        items = list(records.items())
        for first in range(0, len(items), STEP):
            part = [word for uid, record in items[first : first + STEP] for word in (uid, _encode(record))]
            await self._caller.command("HSET", self.records_key, *part)

    async def remove(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        for first in range(0, len(doomed), STEP):
            await self._caller.command("HDEL", self.records_key, *doomed[first : first + STEP])

    async def get_many(self, uids: Sequence[str]) -> dict[str, InventoryRecord]:
        """The records that exist. Raises Undecodable."""
        found: dict[str, InventoryRecord] = {}
        for first in range(0, len(uids), STEP):
            part = uids[first : first + STEP]
            answers = await self._caller.command("HMGET", self.records_key, *part)
            for uid, raw in zip(part, answers, strict=True):
                if raw is not None:
                    found[uid] = decode_inventory_record(raw)
        return found

    async def get(self, uid: str) -> InventoryRecord | None:
        return (await self.get_many([uid])).get(uid)

    async def size(self) -> int:
        return int(await self._caller.command("HLEN", self.records_key))

    async def scan(self, namespace: str | None = None) -> AsyncIterator[list[tuple[str, InventoryRecord | None]]]:
        """All records in pages; a record may appear twice, and None stands for one that can't be decoded. With a
        namespace most records of other namespaces are left out."""
        sign = b"" if namespace is None else _encode(namespace)
        cursor = b"0"
        while True:
            answer = await self._caller.command("HSCAN", self.records_key, cursor, "COUNT", STEP)
            cursor = answer[0]
            found = (_flat(answer[1]) or {}).items()
            part = [(text(uid), _readable(raw)) for uid, raw in found if sign in raw or not raw.startswith(b"{")]
            if part:
                yield part
            if int(cursor) == 0:
                return

    # ---- rounds and Namespaces

    async def rounds(self) -> dict[str, DeletionRound]:
        """Objects whose current deletion is not their first one."""
        found = texts(_flat(await self._caller.command("HGETALL", self.rounds_key)))
        parted = {uid: value.partition(" ") for uid, value in found.items()}
        return {
            uid: DeletionRound(int(number), place) for uid, (number, _, place) in parted.items() if number.isdecimal()
        }

    async def save_rounds(self, rounds: Mapping[str, DeletionRound]) -> None:
        if rounds:
            fields = {uid: f"{found.number} {found.namespace}" for uid, found in rounds.items()}
            await self._caller.command("HSET", self.rounds_key, *_pairs(fields))

    async def remove_rounds(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        if doomed:
            await self._caller.command("HDEL", self.rounds_key, *doomed)

    async def save_dropped(self, uid: str, namespace: str, name: str) -> bool:
        """Records that an operator dropped the deletion of an object; it outlives the deletion's record. True where
        new."""
        return bool(await self._caller.command("HSET", self.dropped_key, uid, f"{namespace}/{name}"))

    async def was_dropped(self, uid: str) -> bool:
        return await self._caller.command("HGET", self.dropped_key, uid) is not None

    async def dropped(self) -> dict[str, tuple[str, str]]:
        """Dropped objects by uid, with namespace and name."""
        found = texts(_flat(await self._caller.command("HGETALL", self.dropped_key)))
        return {uid: (value.partition("/")[0], value.partition("/")[2]) for uid, value in found.items()}

    async def remove_dropped(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        if doomed:
            await self._caller.command("HDEL", self.dropped_key, *doomed)

    async def save_namespace_annotations(self, marks: Mapping[str, NamespaceAnnotations]) -> None:
        if marks:
            await self._caller.command(
                "HSET", self.marks_key, *(word for name, found in marks.items() for word in (name, _encode(found)))
            )

    async def namespace_annotations(self, namespace: str) -> NamespaceAnnotations | None:
        raw = await self._caller.command("HGET", self.marks_key, namespace)
        try:
            return None if raw is None else _decode_marks(raw)
        except msgspec.DecodeError:
            return None

    # ---- decisions of operators

    async def release_held(self) -> int:
        """Accepts the absence of held objects: the next list checks them again and publishes those proven gone."""
        released = await self._resolve_held(drop=False)
        facts = await self.state()
        if "held_token" in facts:
            await self.save_state({"confirmed": facts["held_token"]})
        await self.request_relist()
        return released

    async def drop_held(self) -> int:
        """Removes the records of held objects, so that their deletion is never published."""
        dropped = await self._resolve_held(drop=True)
        await self.request_relist()
        return dropped

    async def request_relist(self) -> None:
        """The watcher of this source lists everything again within seconds."""
        await self.save_state({"relist": await server_ms(self.installation.shards[0])})

    async def accept_restore(self) -> None:
        """Requests a relist, after which the held objects of this source are checked again."""
        now = await server_ms(self.installation.shards[0])
        await self.save_state({"relist": now, "accepted": now})

    async def delete(self) -> None:
        """Deletes all data of a source that is no longer declared. Its open deletions lose the records they need."""
        for key in (self.state_key, self.records_key, self.rounds_key, self.marks_key, self.dropped_key, *self._swept):
            await self._caller.command("UNLINK", key)

    async def _resolve_held(self, *, drop: bool) -> int:
        done: set[str] = set()
        async for part in self.scan():
            held = {uid: record for uid, record in part if record is not None and record.held}
            if drop:
                await self.remove(held)
            else:
                await self.save({uid: msgspec.structs.replace(record, held="") for uid, record in held.items()})
            done.update(held)
        return len(done)


def _readable(raw: bytes) -> InventoryRecord | None:
    try:
        return decode_inventory_record(raw)
    except Undecodable:
        return None


def _pairs(fields: Mapping[str, str | int] | Mapping[str, str]) -> list[str | int]:
    return [word for pair in fields.items() for word in pair]


def _flat(raw: Any) -> dict[bytes, bytes] | None:
    if raw is None or isinstance(raw, dict):
        return raw
    return dict(zip(raw[::2], raw[1::2], strict=True))
