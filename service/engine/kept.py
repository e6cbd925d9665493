"""Record in Redis of what people decided to keep: abandoned jobs of a deletion, and decisions by place and name.
Decisions are one hash in the first shard, one line of JSON per object. They do not expire: `knell kept forget` removes
them."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from service.contract import Undecodable
from service.contract.jobs import Record, decode_record
from service.contract.kept import Abandoned, Decision, decode_decision
from service.engine.installation import Installation
from service.engine.views.reading import text

STEP = 500
"""Fields in one round trip."""


class KeptMemory:
    """Implements the memory that collectors and handlers ask."""

    def __init__(self, installation: Installation) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, "decisions")

    async def abandoned(self, deletion: str) -> Abandoned:
        """By all plans of the deletion, whose records go with the deletion's own."""
        key = f"{self._installation.shard_of(deletion).stem}abandoned:{deletion}"
        found, unknown = list[Record](), 0
        async for _, raw in self._rows(key):
            try:
                found.append(decode_record(raw))
            except Undecodable:
                unknown += 1
        return Abandoned(tuple(found), unknown)

    # ---- decisions

    async def decisions(self, place: str, name: str) -> list[Decision]:
        """Of all objects that were recognised by that name there. Raises Undecodable."""
        raw = await self._caller.command("HGET", self.key, f"{place}/{name}")
        return _lines(raw)

    async def remember(self, decision: Decision) -> None:
        """One for each object: the last word counts."""
        line = msgspec.json.encode(decision).decode()
        await self._installation.shards[0].decide(decision.key, decision.uid, line)

    async def forget(self, key: str, uid: str) -> bool:
        """Whether there was one."""
        return await self._installation.shards[0].decide(key, uid, "")

    async def every(self) -> AsyncIterator[tuple[str, list[Decision] | None]]:
        """By key, in no order; None for what can't be read."""
        async for key, raw in self._rows(self.key):
            try:
                yield text(key), _lines(raw)
            except Undecodable:
                yield text(key), None

    async def _rows(self, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        cursor = b"0"
        while True:
            cursor, page = await self._caller.command("HSCAN", key, cursor, "COUNT", STEP)
            for row in page.items() if isinstance(page, dict) else zip(page[::2], page[1::2], strict=True):
                yield row
            if int(cursor) == 0:
                return


def _lines(raw: bytes | None) -> list[Decision]:
    lines: Sequence[bytes] = raw.splitlines() if raw else ()
    return [decode_decision(line.partition(b" ")[2]) for line in lines]
