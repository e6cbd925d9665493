"""The moves of a shard, as Python calls: typed arguments in, typed answers out.

Each is one atomic script and can be sent again; what they do is said in the Lua file of the same name.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from service.contract import VERSION, Event
from service.engine import replies
from service.engine.arrange import Arranged
from service.engine.calls import Caller
from service.engine.keys import Keys
from service.engine.replies import Attended, Claimed, Look, Planned, Published, Reclaimed, Reconsidered, Settled, Taken
from service.engine.rows import CHUNK, EVENT_FIELDS, Kept, PlanRow, Settlement, Want, as_json, flat, grouped, ms, rows

MOMENT = timedelta(milliseconds=500)
"""How long a lane that one worker looks at is left alone by the others."""
CRASH_LOOP = timedelta(minutes=15)
"""Deaths of planners within this time of the first one are one storm: a process that is restarted and dies again."""
SHORT_WAIT = timedelta(minutes=1)
LONG_WAIT = timedelta(hours=1)
LONGEST_WAIT = timedelta(days=1)
"""How long an event waits whose planner died: at first, and once it is set aside; both are doubled each time."""


class Shard:
    """One shard of the engine."""

    def __init__(self, caller: Caller, keys: Keys, number: int) -> None:
        self.caller, self.keys, self.number = caller, keys, number
        self.stem = keys.stem(number)
        self._route = self.stem + "meta"

    def _move(self, name: str, args: Any, patience: timedelta | None = None, request: str | None = None) -> Any:
        return self.caller.move(name, self._route, self.stem, args, patience=patience, request=request)

    async def publish(self, events: Sequence[Event]) -> list[Published]:
        """While one chunk is on its way, the next is made ready."""
        answers: list[Published] = []
        last: asyncio.Task[bytes] | None = None
        async with asyncio.TaskGroup() as group:
            for first in range(0, len(events), CHUNK):
                part = [(event.deletion, flat(event), as_json(event)) for event in events[first : first + CHUNK]]
                task = group.create_task(self._move("publish", part))
                await asyncio.sleep(0)
                if last is not None:
                    answers += replies.read_published(await last)
                last = task
        return answers if last is None else answers + replies.read_published(last.result())

    async def plan(self, plans: Sequence[PlanRow]) -> list[Planned]:
        answer: list[Planned] = replies.read_planned(await self._move("plan", plans))
        return answer

    async def plan_whole(self, event: Event, entry: str, arranged: Arranged, why: str = "") -> Planned:
        """A plan of any size: chunk by chunk, made visible by the last."""
        number = 0
        answer = Planned("stale", 0)
        for row in rows(event, entry, arranged, why):
            (answer,) = await self.plan([row._replace(number=number)])
            if answer.state == "stale":
                return answer
            number = answer.number
        return answer

    async def open(self, most: int = CHUNK) -> tuple[int, int]:
        moved, left = replies.read_numbers(await self._move("open", [most]))
        return moved, left

    async def look(self, most: int, moment: timedelta = MOMENT, *, alone: bool = False) -> Look:
        """`alone` sets a job that is to be tried alone aside for this caller; else it is only named."""
        answer: Look = replies.read_look(await self._move("look", [most, ms(moment), int(alone)]))
        return answer

    async def take(self, worker: str, lease: timedelta, wants: Sequence[Want], version: int = VERSION) -> Taken:
        args = [worker, ms(lease), version, wants]
        answer: Taken = replies.read_taken(await self._move("take", args))
        return answer

    async def settle(self, worker: str, items: Callable[[], Sequence[Settlement]] | Sequence[Settlement]) -> Settled:
        """`items` may be a function, so that due times are right however late the call gets through."""
        last: Sequence[Settlement] = ()
        order: list[tuple[str, int]] = []

        def args() -> list[Any]:
            nonlocal last, order
            last = items() if callable(items) else items
            plans, groups = grouped(last)
            order = list(groups)
            return [worker, plans, [group.row(lane, fence) for (lane, fence), group in groups.items()]]

        late, opening = replies.read_late(await self._move("settle", args))
        refused = {(fence, job) for (_, fence), jobs in zip(order, late, strict=True) for job in jobs}
        if not refused:
            return Settled([item.fence for item in last], opening)
        accepted = [0 if (item.fence, item.job) in refused else item.fence for item in last]
        return Settled(accepted, opening)

    async def renew(
        self,
        worker: str,
        lease: timedelta,
        batches: Sequence[tuple[str, int]],
        patience: timedelta,
        silence: timedelta = timedelta(seconds=8),
    ) -> tuple[int, list[int]]:
        """The worker's heartbeat: it is dead when it sends none for `silence`. Batches are (lane, fence);
        answers the time and the fences that are ours no longer."""
        args = [worker, ms(lease), batches, ms(silence)]
        return replies.read_renewed(await self._move("renew", args, patience=patience))

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
        """A worker is dead when its lease has run out and it was silent for `silence`; with `by_heartbeat` also when it
        sent none, while others did, for as long as it named in `renew`."""
        args = [most, deaths, ms(silence), ms(storm), deaths_in_all, int(by_heartbeat)]
        answer: Reclaimed = replies.read_reclaimed(await self._move("reclaim", args))
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
        """For a planner with empty hands: an entry that nobody has touched for that long is its own from now on."""
        waits = [ms(CRASH_LOOP), ms(SHORT_WAIT), ms(LONG_WAIT), ms(LONGEST_WAIT)]
        args = [worker, ms(silent), deaths, ms(silence), ms(storm), deaths_in_all, *waits]
        answer: Claimed = replies.read_claimed(await self._move("claim", args))
        return answer

    async def requeue(
        self,
        cursor: str = "0",
        most: int = 50,
        jobs: int = 1000,
        grace: timedelta = timedelta(seconds=30),
        version: int = VERSION,
    ) -> tuple[str, int, int]:
        return replies.read_stepped(await self._move("requeue", [cursor, most, jobs, ms(grace), version]))

    async def mend(
        self, cursor: str = "0", most: int = 50, grace: timedelta = timedelta(seconds=30)
    ) -> tuple[str, int, int]:
        return replies.read_stepped(await self._move("mend", [cursor, most, ms(grace)]))

    async def hold(self, events: Sequence[Kept]) -> int:
        # Raw fields are copied by the script: bytes that are no text can't travel as arguments.
        kept: int = replies.read_numbers(await self._move("hold", events))[0]
        return kept

    async def unhold(self, member: str, *, replay: bool, who: str, event: list[Any] | None = None) -> str:
        word: str = replies.read_words(await self._move("unhold", [member, int(replay), who, event or []]))[0]
        return word

    async def reconsider(self, deletions: Sequence[tuple[str, int]], why: str, most: int = CHUNK) -> list[Reconsidered]:
        """One step: deletions, each with the number of its job to begin with, and at most so many jobs in all."""
        args = [why, EVENT_FIELDS, most, deletions]
        answer: list[Reconsidered] = replies.read_reconsidered(await self._move("reconsider", args))
        return answer

    async def recall(self, deletions: Sequence[str], fields: Sequence[str]) -> list[list[str]]:
        """Fields of deletions' records, in their order; an absent one is empty."""
        found: list[list[str]] = []
        for first in range(0, len(deletions), CHUNK):
            found += replies.read_recalled(await self._move("recall", [fields, deletions[first : first + CHUNK]]))
        return found

    async def name_cluster(self, name: str, uid: str, others: Sequence[str], *, pinned: bool) -> dict[str, str]:
        """What every name of a cluster stands for, after this one was seen to have that uid."""
        words: list[str] = replies.read_words(await self._move("name_cluster", [name, uid, int(pinned), others]))
        return dict(zip(words[::2], words[1::2], strict=True))

    async def retry(self, job: str, who: str) -> str:
        word: str = replies.read_words(await self._move("retry", [job, who]))[0]
        return word

    async def abandon(self, job: str, who: str) -> str:
        word: str = replies.read_words(await self._move("abandon", [job, who]))[0]
        return word

    async def decide(self, name: str, uid: str, said: str) -> bool:
        """What is kept under a name for one object, or, with an empty text, that nothing is any more."""
        return bool(replies.read_numbers(await self._move("decide", [name, uid, said]))[0])

    async def withdraw(self, deletion: str = "", why: str = "", most: int = 200) -> tuple[str, int]:
        """One step; answers the deletion's state and how many deletions have jobs left to cancel."""
        return replies.read_woken(await self._move("withdraw", [deletion, why, most]))

    async def pause(self, lane: str, *, stop: bool, who: str) -> bool:
        return bool(replies.read_numbers(await self._move("pause", [lane, int(stop), who]))[0])

    async def wake(self, place: str) -> int:
        """Score anew the lanes that waited for a budget."""
        cursor, woken = "0", 0
        while True:
            cursor, part = replies.read_woken(await self._move("wake", [place, cursor]))
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
        deletions, emptied = replies.read_numbers(await self._move("expire", args))
        return deletions, emptied

    async def survey(self, every: timedelta = timedelta(0)) -> None:
        """Bring the numbers for dashboards up to date."""
        while not replies.read_numbers(await self._move("survey", [1000, ms(every)]))[0]:
            pass

    async def attend(self, replication_id: str, known_epoch: str) -> Attended:
        args = [self.keys.shards, replication_id, known_epoch, secrets.token_hex(8)]
        answer: Attended = replies.read_attended(await self._move("attend", args))
        return answer
