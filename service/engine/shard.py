"""Client of one shard: one method per move, with typed arguments and replies.

Each move is one atomic script that can be sent again. The Lua file of the same name documents what it does.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from service.contract import VERSION, Event
from service.engine import script_replies
from service.engine.calls import RedisCaller
from service.engine.keys import Keys
from service.engine.late_targets import BOUNDS, LateBounds
from service.engine.plan_layout import PlanLayout
from service.engine.script_arguments import (
    CHUNK,
    EVENT_FIELDS,
    JobSettlement,
    LaneRequest,
    LateTargets,
    PlanRow,
    UnplannedEvent,
    as_json,
    event_fields,
    group_by_lane,
    ms,
    plan_rows,
)
from service.engine.script_replies import (
    Appended,
    Claimed,
    DueLanes,
    EpochReply,
    Planned,
    Published,
    RecheckReply,
    Reclaimed,
    SettledBatch,
    Taken,
)

MOMENT = timedelta(milliseconds=500)
"""How long a lane that was offered to one worker is not offered to others."""
CRASH_LOOP = timedelta(minutes=15)
"""Planner deaths within this time of the first one count as one: the process is restarted and dies again."""
SHORT_WAIT = timedelta(minutes=1)
LONG_WAIT = timedelta(hours=1)
LONGEST_WAIT = timedelta(days=1)
"""How long an event waits whose planner died: at first, and once it is set aside. Both are doubled each time."""


class Shard:
    def __init__(self, caller: RedisCaller, keys: Keys, number: int) -> None:
        self.caller, self.keys, self.number = caller, keys, number
        self.stem = keys.stem(number)
        self._route = self.stem + "meta"

    def _move(self, name: str, args: Any, patience: timedelta | None = None, request: str | None = None) -> Any:
        return self.caller.move(name, self._route, self.stem, args, patience=patience, request=request)

    async def publish(self, events: Sequence[Event]) -> list[Published]:
        """Encodes the next chunk while the previous one is being sent."""
        answers: list[Published] = []
        last: asyncio.Task[bytes] | None = None
        async with asyncio.TaskGroup() as group:
            for first in range(0, len(events), CHUNK):
                part = [
                    (event.deletion, event_fields(event), as_json(event)) for event in events[first : first + CHUNK]
                ]
                task = group.create_task(self._move("publish", part))
                await asyncio.sleep(0)
                if last is not None:
                    answers += script_replies.read_published(await last)
                last = task
        return answers if last is None else answers + script_replies.read_published(last.result())

    async def plan(self, plans: Sequence[PlanRow]) -> list[Planned]:
        answer: list[Planned] = script_replies.read_planned(await self._move("plan", plans))
        return answer

    async def plan_whole(self, event: Event, entry: str, arranged: PlanLayout, why: str = "") -> Planned:
        """Writes a plan of any size in chunks; the last chunk makes it visible."""
        number = 0
        answer = Planned("stale", 0)
        for row in plan_rows(event, entry, arranged, why):
            (answer,) = await self.plan([row._replace(number=number)])
            if answer.state == "stale":
                return answer
            number = answer.number
        return answer

    async def open_stages(self, most: int = CHUNK) -> tuple[int, int]:
        moved, left = script_replies.read_numbers(await self._move("open_stages", [most]))
        return moved, left

    async def due_lanes(self, most: int, moment: timedelta = MOMENT, *, alone: bool = False) -> DueLanes:
        """With `alone` a job that must be tried alone is reserved for this caller; without, it is only reported."""
        answer: DueLanes = script_replies.read_due_lanes(await self._move("due_lanes", [most, ms(moment), int(alone)]))
        return answer

    async def take(self, worker: str, lease: timedelta, wants: Sequence[LaneRequest], version: int = VERSION) -> Taken:
        args = [worker, ms(lease), version, wants]
        answer: Taken = script_replies.read_taken(await self._move("take", args))
        return answer

    async def settle(
        self, worker: str, items: Callable[[], Sequence[JobSettlement]] | Sequence[JobSettlement]
    ) -> SettledBatch:
        """`items` may be a function, which is called right before sending so that due times are current."""
        last: Sequence[JobSettlement] = ()
        order: list[tuple[str, int]] = []

        def args() -> list[Any]:
            nonlocal last, order
            last = items() if callable(items) else items
            plans, groups = group_by_lane(last)
            order = list(groups)
            return [worker, plans, [group.row(lane, fence) for (lane, fence), group in groups.items()]]

        late, opening = script_replies.read_settled(await self._move("settle", args))
        refused = {(fence, job) for (_, fence), jobs in zip(order, late, strict=True) for job in jobs}
        if not refused:
            return SettledBatch([item.fence for item in last], opening)
        accepted = [0 if (item.fence, item.job) in refused else item.fence for item in last]
        return SettledBatch(accepted, opening)

    async def append(
        self, worker: str, late: LateTargets, offset: int, size: int, bounds: LateBounds = BOUNDS
    ) -> Appended:
        """One chunk of late targets: `size` rows from `offset` on. The one with the last row, or with no row, makes all
        of them part of the deletion."""
        job, rows = late.settlement, late.rows[offset : offset + size]
        final = not rows or offset + size >= len(late.rows)
        args = [
            worker, job.lane, job.fence, job.job, offset, rows, int(final), job.record, job.note, bounds.per_call,
            bounds.targets, bounds.stages,
        ]  # fmt: skip
        return script_replies.read_appended(await self._move("append", args))

    async def append_all(self, worker: str, late: LateTargets, bounds: LateBounds = BOUNDS) -> Appended:
        """Appends late targets in chunks, as many as one look may add. Begins anew if what it wrote was removed."""
        offset, added = 0, 0
        while True:
            size = min(bounds.per_call, bounds.per_look - added)
            answer = await self.append(worker, late, offset, size, bounds)
            if answer.state == "writing":
                offset, added = offset + size, answer.added
            elif answer.state == "stale":
                offset, added = 0, 0
            elif answer.state != "preparing":
                return answer

    async def renew(
        self,
        worker: str,
        lease: timedelta,
        batches: Sequence[tuple[str, int]],
        patience: timedelta,
        silence: timedelta = timedelta(seconds=8),
    ) -> tuple[int, list[int]]:
        """The worker's heartbeat; without one for `silence` it counts as dead. Batches are (lane, fence). Returns the
        time and the fences that this worker no longer holds."""
        args = [worker, ms(lease), batches, ms(silence)]
        return script_replies.read_renewed(await self._move("renew", args, patience=patience))

    async def reclaim(
        self,
        *,
        deaths: int = 3,
        silence: timedelta,
        by_heartbeat: bool = False,
        storm: timedelta = timedelta(seconds=60),
        deaths_in_all: int = 10,
        most: int = 200,
    ) -> Reclaimed:
        """A worker is dead when its lease has expired and it was silent for `silence`; with `by_heartbeat` also when it
        sent no heartbeat for the time named in `renew` while others did."""
        args = [most, deaths, ms(silence), ms(storm), deaths_in_all, int(by_heartbeat)]
        answer: Reclaimed = script_replies.read_reclaimed(await self._move("reclaim", args))
        return answer

    async def claim(
        self,
        worker: str,
        *,
        silent: timedelta,
        deaths: int = 3,
        silence: timedelta,
        storm: timedelta = timedelta(seconds=60),
        deaths_in_all: int = 10,
    ) -> Claimed:
        """For an idle planner: takes over an entry that has been pending without activity for `silent`."""
        waits = [ms(CRASH_LOOP), ms(SHORT_WAIT), ms(LONG_WAIT), ms(LONGEST_WAIT)]
        args = [worker, ms(silent), deaths, ms(silence), ms(storm), deaths_in_all, *waits]
        answer: Claimed = script_replies.read_claimed(await self._move("claim", args))
        return answer

    async def requeue(
        self,
        cursor: str = "0",
        most: int = 50,
        jobs: int = 1000,
        grace: timedelta = timedelta(seconds=30),
        version: int = VERSION,
    ) -> tuple[str, int, int]:
        return script_replies.read_step(await self._move("requeue", [cursor, most, jobs, ms(grace), version]))

    async def repair(
        self, cursor: str = "0", most: int = 50, grace: timedelta = timedelta(seconds=30)
    ) -> tuple[str, int, int]:
        return script_replies.read_step(await self._move("repair", [cursor, most, ms(grace)]))

    async def hold(self, events: Sequence[UnplannedEvent]) -> int:
        # The script copies raw fields from the stream: bytes that are not text can't be passed as arguments.
        kept: int = script_replies.read_numbers(await self._move("hold", events))[0]
        return kept

    async def unhold(self, member: str, *, replay: bool, who: str, event: list[Any] | None = None) -> str:
        word: str = script_replies.read_words(await self._move("unhold", [member, int(replay), who, event or []]))[0]
        return word

    async def recheck(self, deletions: Sequence[tuple[str, int]], why: str, most: int = CHUNK) -> list[RecheckReply]:
        """One step: deletions, each with the number of the job to begin with, and at most `most` jobs in all."""
        args = [why, EVENT_FIELDS, most, deletions]
        answer: list[RecheckReply] = script_replies.read_recheck(await self._move("recheck", args))
        return answer

    async def read_deletions(self, deletions: Sequence[str], fields: Sequence[str]) -> list[list[str]]:
        """Fields of the records of deletions, in their order; absent fields are empty."""
        found: list[list[str]] = []
        for first in range(0, len(deletions), CHUNK):
            found += script_replies.read_fields(
                await self._move("read_deletions", [fields, deletions[first : first + CHUNK]])
            )
        return found

    async def register_cluster(self, name: str, uid: str, others: Sequence[str], *, pinned: bool) -> dict[str, str]:
        """Registers the uid that was read under a cluster's name; returns the known uids by name."""
        words: list[str] = script_replies.read_words(
            await self._move("register_cluster", [name, uid, int(pinned), others])
        )
        return dict(zip(words[::2], words[1::2], strict=True))

    async def retry(self, job: str, who: str) -> str:
        word: str = script_replies.read_words(await self._move("retry", [job, who]))[0]
        return word

    async def abandon(self, job: str, who: str) -> str:
        word: str = script_replies.read_words(await self._move("abandon", [job, who]))[0]
        return word

    async def save_keep_decision(self, name: str, uid: str, decision: str) -> bool:
        """Saves the keep decision for one object under a name; an empty `decision` removes it."""
        return bool(script_replies.read_numbers(await self._move("save_keep_decision", [name, uid, decision]))[0])

    async def withdraw(self, deletion: str = "", why: str = "", most: int = 200) -> tuple[str, int]:
        """One step; returns the deletion's state and the number of deletions with jobs left to cancel."""
        return script_replies.read_state_and_count(await self._move("withdraw", [deletion, why, most]))

    async def pause(self, lane: str, *, stop: bool, who: str) -> bool:
        return bool(script_replies.read_numbers(await self._move("pause", [lane, int(stop), who]))[0])

    async def wake_lanes(self, place: str) -> int:
        """Rescores the lanes that wait for a budget; returns their number."""
        cursor, woken = "0", 0
        while True:
            cursor, part = script_replies.read_state_and_count(await self._move("wake_lanes", [place, cursor]))
            woken += part
            if cursor == "0":
                return woken

    async def expire(
        self,
        *,
        finished: timedelta,
        audit: timedelta,
        audit_entries: int,
        lanes: timedelta,
        consumers: timedelta = timedelta(hours=1),
        most: int = 200,
    ) -> tuple[int, int]:
        args = [most, ms(finished), ms(audit), audit_entries, ms(lanes), ms(consumers)]
        deletions, emptied = script_replies.read_numbers(await self._move("expire", args))
        return deletions, emptied

    async def refresh_stats(self, every: timedelta = timedelta(0)) -> None:
        """Recomputes the statistics in `stats`."""
        while not script_replies.read_numbers(await self._move("refresh_stats", [1000, ms(every)]))[0]:
            pass

    async def check_epoch(self, replication_id: str, known_epoch: str) -> EpochReply:
        args = [self.keys.shards, replication_id, known_epoch, secrets.token_hex(8)]
        answer: EpochReply = script_replies.read_epoch(await self._move("check_epoch", args))
        return answer
