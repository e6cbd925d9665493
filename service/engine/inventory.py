"""What is remembered of a source: where its watch stands, and each observed object's identity, marks and resources.

An observed object is gone when its deletion is planned: what is kept here is then all that is known of it. Everything
lies in the first shard, in plain hashes that read well in any Redis tool; every write may be sent twice.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.contract.errors import Undecodable
from service.engine.away import is_away
from service.engine.installation import Installation
from service.engine.views.reading import Command, batch, server_ms, text, texts
from service.settings.sources import ORPHANS

STEP: Final = 500
"""Records in one round trip."""
_ERA: Final = "era:"
_FEWEST: Final = 1_000_000_000_000
"""Numbers of lists begin with the time at which a source's state began, in milliseconds."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observed object. `seen` is the number of the list that saw it last, `scope` what was watched then.

    `gone` is when its absence was proven, 0 while it lives; `held` says why its absence is not believed yet; `fault`
    says why nothing recognises its resources. `kept` says why its resources are to stay: a sweep leaves them alone.
    `namespace_annotations` are the marks of its Namespace as they were read at `namespace_at`; None: never read.
    """

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


class Round(NamedTuple):
    """Which deletion of an object is the current one, and where the object is."""

    number: int
    namespace: str


class NamespaceMarks(msgspec.Struct, frozen=True):
    """The marks of a Namespace and when they were read."""

    annotations: dict[str, str]
    at: int


_decode = msgspec.json.Decoder(type=Remembered).decode
_decode_marks = msgspec.json.Decoder(type=NamespaceMarks).decode
_encode = msgspec.json.Encoder().encode


def decode_remembered(raw: bytes | str) -> Remembered:
    """Raises Undecodable, with one sentence on what is wrong."""
    try:
        found = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the inventory's record can't be read: {error}") from None
    if found.v > VERSION:
        raise Undecodable(f"the inventory's record has version {found.v}, newer than this process knows")
    return found


async def ask(installation: Installation, commands: Sequence[Command]) -> list[Any]:
    """Commands that may be sent twice, in one round trip, asked until they are answered."""
    while True:
        try:
            return await batch(installation.caller, commands)
        except Exception as error:
            if not is_away(error):
                raise
            # The plain command waits, and says so, until the server is back.
            await installation.caller.command("EXISTS", commands[0][1])
            await asyncio.sleep(random.uniform(0.01, 0.1))


async def end_removed(installation: Installation, declared: Iterable[str]) -> list[str]:
    """Sources that were watched once and are declared no more; their inventories will never be diffed again."""
    known = await installation.caller.command("SMEMBERS", _declared_key(installation))
    removed = sorted({text(name) for name in known} - set(declared))
    for name in removed:
        await Inventory(installation, name).end_scope()
    return removed


def _declared_key(installation: Installation) -> str:
    return installation.keys.of(0, "sources")


class Inventory:
    """The memory of one source."""

    def __init__(self, installation: Installation, source: str) -> None:
        self.installation, self.source = installation, source
        self._caller = installation.caller
        self.state_key = installation.keys.of(0, f"source:{source}")
        self.records_key = installation.keys.of(0, f"inventory:{source}")
        self.rounds_key = installation.keys.of(0, f"rounds:{source}")
        self.marks_key = installation.keys.of(0, f"namespaces:{source}")
        self.dropped_key = installation.keys.of(0, f"dropped:{source}")
        self._swept = [installation.keys.of(0, name) for name in (f"orphans:{source}", f"source:{source}{ORPHANS}")]

    # ---- where the watch stands

    async def facts(self) -> dict[str, str]:
        return texts(_flat(await self._caller.command("HGETALL", self.state_key)))

    async def note(self, fields: Mapping[str, str | int]) -> None:
        if fields:
            await self._caller.command("HSET", self.state_key, *_pairs(fields))

    async def clear(self, *fields: str) -> None:
        if fields:
            await self._caller.command("HDEL", self.state_key, *fields)

    async def next_number(self) -> int:
        """The number of a list that begins. One that is skipped does no harm, one that came before would."""
        number = int(await self._caller.command("HINCRBY", self.state_key, "number", 1))
        if number > _FEWEST:
            return number
        # The state is new or was lost, while records with high numbers may still be there: begin above all of them.
        now = await server_ms(self.installation.shards[0])
        return int(await self._caller.command("HINCRBY", self.state_key, "number", now))

    async def begin_epoch(self) -> None:
        """A name that is lost with everything else: whoever does not find it again knows that Redis was emptied."""
        await self._caller.command("HSETNX", self.state_key, "epoch", secrets.token_hex(8))

    async def begin_scope(self, scope: str, facts: Mapping[str, str]) -> str:
        """A name for what is watched from now on, the same for all who watch it, and another one each time that a scope
        comes back: what was remembered under it before may have gone meanwhile, unseen."""
        mine = f"{_ERA}{scope}"
        await self._end_scopes(facts, mine)
        await self._caller.command("SADD", _declared_key(self.installation), self.source)
        await self._caller.command("HSETNX", self.state_key, mine, secrets.token_hex(4))
        return f"{scope}.{text(await self._caller.command('HGET', self.state_key, mine))}"

    async def end_scope(self) -> None:
        """It is watched no more: should it be declared again one day, nothing is told from what was remembered."""
        await self._end_scopes(await self.facts())
        await self._caller.command("SREM", _declared_key(self.installation), self.source)

    async def _end_scopes(self, facts: Mapping[str, str], but: str = "") -> None:
        await self.clear(*(field for field in facts if field.startswith(_ERA) and field != but))

    async def server_ms(self) -> int:
        return await server_ms(self.installation.shards[0])

    async def wishes(self) -> list[str]:
        """The epoch, when a list was last asked for, and when a person last accepted that the cluster was restored:
        whatever changes in it is a reason to list anew."""
        found = await self._caller.command("HMGET", self.state_key, "epoch", "relist", "accepted")
        return [text(one) if one is not None else "" for one in found]

    # ---- observed objects

    async def remember(self, records: Mapping[str, Remembered]) -> None:
        items = list(records.items())
        for first in range(0, len(items), STEP):
            part = [word for uid, record in items[first : first + STEP] for word in (uid, _encode(record))]
            await self._caller.command("HSET", self.records_key, *part)

    async def forget(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        for first in range(0, len(doomed), STEP):
            await self._caller.command("HDEL", self.records_key, *doomed[first : first + STEP])

    async def recall(self, uids: Sequence[str]) -> dict[str, Remembered]:
        """Those that are known. Raises Undecodable."""
        found: dict[str, Remembered] = {}
        for first in range(0, len(uids), STEP):
            part = uids[first : first + STEP]
            answers = await self._caller.command("HMGET", self.records_key, *part)
            for uid, raw in zip(part, answers, strict=True):
                if raw is not None:
                    found[uid] = decode_remembered(raw)
        return found

    async def recall_one(self, uid: str) -> Remembered | None:
        return (await self.recall([uid])).get(uid)

    async def size(self) -> int:
        return int(await self._caller.command("HLEN", self.records_key))

    async def scan(self, namespace: str | None = None) -> AsyncIterator[list[tuple[str, Remembered | None]]]:
        """All records, step by step; one may come twice. None stands for a record that can't be read. With a namespace
        most of the others are left out."""
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

    async def rounds(self) -> dict[str, Round]:
        """Objects whose deletion is not their first one."""
        found = texts(_flat(await self._caller.command("HGETALL", self.rounds_key)))
        parted = {uid: value.partition(" ") for uid, value in found.items()}
        return {uid: Round(int(number), place) for uid, (number, _, place) in parted.items() if number.isdecimal()}

    async def note_rounds(self, rounds: Mapping[str, Round]) -> None:
        if rounds:
            fields = {uid: f"{found.number} {found.namespace}" for uid, found in rounds.items()}
            await self._caller.command("HSET", self.rounds_key, *_pairs(fields))

    async def drop_rounds(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        if doomed:
            await self._caller.command("HDEL", self.rounds_key, *doomed)

    async def note_dropped(self, uid: str, namespace: str, name: str) -> bool:
        """A person dropped the deletion of that object; whether this is new. It outlasts the deletion's record."""
        return bool(await self._caller.command("HSET", self.dropped_key, uid, f"{namespace}/{name}"))

    async def was_dropped(self, uid: str) -> bool:
        return await self._caller.command("HGET", self.dropped_key, uid) is not None

    async def dropped(self) -> dict[str, tuple[str, str]]:
        """By uid, with their Namespaces and names."""
        found = texts(_flat(await self._caller.command("HGETALL", self.dropped_key)))
        return {uid: (value.partition("/")[0], value.partition("/")[2]) for uid, value in found.items()}

    async def forget_dropped(self, uids: Iterable[str]) -> None:
        doomed = list(uids)
        if doomed:
            await self._caller.command("HDEL", self.dropped_key, *doomed)

    async def note_marks(self, marks: Mapping[str, NamespaceMarks]) -> None:
        if marks:
            await self._caller.command(
                "HSET", self.marks_key, *(word for name, found in marks.items() for word in (name, _encode(found)))
            )

    async def marks(self, namespace: str) -> NamespaceMarks | None:
        raw = await self._caller.command("HGET", self.marks_key, namespace)
        try:
            return None if raw is None else _decode_marks(raw)
        except msgspec.DecodeError:
            return None

    # ---- a person's word

    async def release_held(self) -> int:
        """Believe what was held: the next list looks at it again, and what is proven gone is published then."""
        released = await self._held(drop=False)
        facts = await self.facts()
        if "held_token" in facts:
            await self.note({"confirmed": facts["held_token"]})
        await self.ask_for_relist()
        return released

    async def drop_held(self) -> int:
        """Forget what was held: nothing is ever published of it."""
        dropped = await self._held(drop=True)
        await self.ask_for_relist()
        return dropped

    async def ask_for_relist(self) -> None:
        """Whoever watches this source lists everything anew within seconds."""
        await self.note({"relist": await server_ms(self.installation.shards[0])})

    async def accept_restore(self) -> None:
        """The same, and then what is held of this source is looked at anew."""
        now = await server_ms(self.installation.shards[0])
        await self.note({"relist": now, "accepted": now})

    async def drop(self) -> None:
        """Remove everything of a source that is no longer declared. Its open deletions lose what they recognise."""
        for key in (self.state_key, self.records_key, self.rounds_key, self.marks_key, self.dropped_key, *self._swept):
            await self._caller.command("UNLINK", key)

    async def _held(self, *, drop: bool) -> int:
        done: set[str] = set()
        async for part in self.scan():
            held = {uid: record for uid, record in part if record is not None and record.held}
            if drop:
                await self.forget(held)
            else:
                await self.remember({uid: msgspec.structs.replace(record, held="") for uid, record in held.items()})
            done.update(held)
        return len(done)


def _readable(raw: bytes) -> Remembered | None:
    try:
        return decode_remembered(raw)
    except Undecodable:
        return None


def _pairs(fields: Mapping[str, str | int] | Mapping[str, str]) -> list[str | int]:
    return [word for pair in fields.items() for word in pair]


def _flat(raw: Any) -> dict[bytes, bytes] | None:
    if raw is None or isinstance(raw, dict):
        return raw
    return dict(zip(raw[::2], raw[1::2], strict=True))
