"""Store of keep decisions by place and name, and of the jobs of a deletion whose resources stay.
Decisions are one hash in the first shard, with one line of JSON per object. They do not expire; `knell kept forget`
removes them."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from service.contract import Undecodable
from service.contract.jobs import JobRecord, decode_job_record
from service.contract.kept import Abandoned, KeepDecision, decode_keep_decision
from service.engine.batch_reads import text
from service.engine.installation import Installation

STEP = 500
"""Fields in one round trip."""

_GIVEN_UP: Final = re.compile(rb'"state":\s*"dead"')


class KeptStore:
    def __init__(self, installation: Installation) -> None:
        self._installation, self._caller = installation, installation.caller
        self.key = installation.keys.of(0, "decisions")

    async def abandoned(self, deletion: str) -> Abandoned:
        """The abandoned jobs of all plans of a deletion. They are removed together with the deletion's record."""
        return await _decoded(self._rows(f"{self._installation.shard_of(deletion).stem}abandoned:{deletion}"))

    async def abandoned_before(self, deletion: str, plan: int) -> Abandoned:
        """Those of earlier plans than this one, which can't change any more."""
        key = f"{self._installation.shard_of(deletion).stem}abandoned:{deletion}"
        return await _decoded((job, raw) async for job, raw in self._rows(key) if _plan_of(job) < plan)

    async def given_up(self, deletion: str) -> Abandoned:
        """The abandoned jobs, and those of the present plan that were given up. Reads all jobs of the plan if there is
        one."""
        stem = self._installation.shard_of(deletion).stem
        plan, count = await self._caller.command("HMGET", f"{stem}deletion:{deletion}", "plan", "given_up")
        found = await self.abandoned(deletion)
        if plan is None or int(count or 0) <= 0:
            return found
        # Most jobs are gone and need not be decoded.
        rows = self._rows(f"{stem}job:{deletion}#{int(plan)}")
        others = await _decoded((key, raw) async for key, raw in rows if _GIVEN_UP.search(raw))
        return Abandoned((*found.jobs, *others.jobs), found.unknown + others.unknown)

    # ---- decisions

    async def decisions(self, place: str, name: str) -> list[KeepDecision]:
        """The decisions for all objects of that name in that place. Raises Undecodable."""
        raw = await self._caller.command("HGET", self.key, f"{place}/{name}")
        return _lines(raw)

    async def save(self, decision: KeepDecision) -> None:
        """Replaces an earlier decision for the same object."""
        line = msgspec.json.encode(decision).decode()
        await self._installation.shards[0].save_keep_decision(decision.key, decision.uid, line)

    async def remove(self, key: str, uid: str) -> bool:
        """Whether there was such a decision."""
        return await self._installation.shards[0].save_keep_decision(key, uid, "")

    async def all_decisions(self) -> AsyncIterator[tuple[str, list[KeepDecision] | None]]:
        """All decisions by key, in no order; None for those that can't be decoded."""
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


def _lines(raw: bytes | None) -> list[KeepDecision]:
    lines: Sequence[bytes] = raw.splitlines() if raw else ()
    return [decode_keep_decision(line.partition(b" ")[2]) for line in lines]


def _plan_of(job: bytes) -> int:
    """0 for a field that is no job's id, which may be about any plan."""
    number = job.rpartition(b"#")[2].partition(b".")[0]
    return int(number) if number.isdigit() else 0


async def _decoded(rows: AsyncIterator[tuple[bytes, bytes]]) -> Abandoned:
    found, unknown = list[JobRecord](), 0
    async for _, raw in rows:
        try:
            found.append(decode_job_record(raw))
        except Undecodable:
            unknown += 1
    return Abandoned(tuple(found), unknown)
