"""The moves of a shard, as Python calls: typed arguments in, typed answers out.

Each is one atomic script and can be sent again; what they do is said in the Lua file of the same name.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from service.contract import VERSION, Event
from service.stream.arrange import Arranged
from service.stream.calls import Caller
from service.stream.keys import Keys

MOMENT = timedelta(milliseconds=500)
"""How long a lane that one worker looks at is left alone by the others."""

CHUNK = 1000
"""Jobs or events in one call: what keeps a script short."""


def ms(duration: timedelta) -> int:
    return int(duration / timedelta(milliseconds=1))


class DueLane(NamedTuple):
    name: str
    urgent: int
    background: int
    leased: int


class Look(NamedTuple):
    """What a look found: `upcoming` is 0 where nothing is known to come."""

    now: int
    upcoming: int
    paused: int
    lanes: list[DueLane]
    alone: list[str]


class Want(NamedTuple):
    """What to take of a lane. `again` says when its budget has more; `alone` names a job to be tried alone."""

    lane: str
    urgent: int
    background: int
    cap: int
    again: int = 0
    alone: str = ""


class TakenLane(NamedTuple):
    """Jobs of one lane under one fencing token; their records, as stored, stand in the same order."""

    lane: str
    fence: int
    jobs: list[str]
    records: list[str]


class Taken(NamedTuple):
    now: int
    lanes: list[TakenLane]


class Published(NamedTuple):
    state: str
    entry: str


class Planned(NamedTuple):
    state: str
    number: int


class PlanRow(NamedTuple):
    """One deletion's plan, or a chunk of it."""

    deletion: str
    entry: str
    number: int
    offset: int
    jobs: list[list[Any]]
    final: bool
    stages: list[list[Any]]
    release: int
    chains: int
    event: list[str | int]
    last: str
    why: str = ""


class Kept(NamedTuple):
    """An event that can't be planned. `where` is held or newer; after `again` ms it is planned again (0: never)."""

    entry: str
    where: str
    why: str
    deletion: str = ""
    event: Sequence[str | int] = ()
    again: int = 0


class Settlement(NamedTuple):
    """What becomes of one attempt's job. `delay` is in milliseconds from the moment it is sent.

    `record` is the new record without its closing brace: the script adds the server's times to it.
    """

    job: str
    fence: int
    kind: str
    delay: int
    stage: int
    lane: str
    urgent: int
    next_lane: str
    was_held: int
    held: int
    alone: int
    record: str
    note: str


class Settled(NamedTuple):
    accepted: list[int]
    opening: int


class Reclaimed(NamedTuple):
    given_back: list[str]
    set_aside: list[str]
    next_end: int


class Claimed(NamedTuple):
    """An entry ('': none), whether it is to be held and not planned, and how often a planner died alone with it."""

    entry: str
    hold: bool
    fallen: int


class Reconsidered(NamedTuple):
    """The state in which a deletion was met, how much of it was brought forward, and the next job to look at, or -1."""

    state: str
    forward: int
    next: int


class Attended(NamedTuple):
    shards: int
    epoch: str
    lost: int


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(type=kind, strict=False).decode


_look, _taken = _decoder(Look), _decoder(Taken)
_late: Callable[[bytes], tuple[list[list[str]], int]] = _decoder(tuple[list[list[str]], int])
_published, _planned = _decoder(list[Published]), _decoder(list[Planned])
_reclaimed, _attended, _claimed = _decoder(Reclaimed), _decoder(Attended), _decoder(Claimed)
_numbers, _words = _decoder(list[int]), _decoder(list[str])
_reconsidered: Callable[[bytes], list[Reconsidered]] = _decoder(list[Reconsidered])
_recalled: Callable[[bytes], list[list[str]]] = _decoder(list[list[str]])
_renewed: Callable[[bytes], tuple[int, list[int]]] = _decoder(tuple[int, list[int]])
_woken: Callable[[bytes], tuple[str, int]] = _decoder(tuple[str, int])
_stepped: Callable[[bytes], tuple[str, int, int]] = _decoder(tuple[str, int, int])


class Grouped:
    """What a lane's batch came to, as `settle` takes it: the plain successes by their note, and the rest."""

    __slots__ = ("gone", "rest")

    def __init__(self) -> None:
        self.gone: dict[str, tuple[list[str], dict[tuple[int, int], list[str]]]] = {}
        self.rest: list[Any] = []

    def row(self, lane: str, fence: int) -> list[Any]:
        # The ids stand in the server's order, so that a whole batch is known by its text.
        gone = [
            (note, len(jobs), " ".join(sorted(jobs)), [(*place, fields) for place, fields in parts.items()])
            for note, (jobs, parts) in self.gone.items()
        ]
        return [lane, fence, gone, self.rest]


def grouped(items: Sequence[Settlement]) -> tuple[list[str], dict[tuple[str, int], Grouped]]:
    """Settlements by lane and fence; plans are named once and then by number."""
    plans: dict[str, int] = {}
    groups: dict[tuple[str, int], Grouped] = {}
    seen: set[tuple[str, int]] = set()
    for item in items:
        if (item.job, item.fence) in seen:
            continue
        seen.add((item.job, item.fence))
        name, _, number = item.job.rpartition(".")
        plan = plans.get(name)
        if plan is None:
            plan = plans[name] = len(plans) + 1
        group = groups.get((item.lane, item.fence))
        if group is None:
            group = groups[item.lane, item.fence] = Grouped()
        if item.kind == "gone" and not item.was_held:
            alike = group.gone.get(item.note)
            if alike is None:
                alike = group.gone[item.note] = ([], {})
            alike[0].append(item.job)
            fields = alike[1].get((plan, item.stage))
            if fields is None:
                fields = alike[1][plan, item.stage] = []
            fields += (number, item.record + "}")
        else:
            group.rest.append(
                (item.kind, item.job, plan, number, item.stage, item.record, item.note, item.delay, item.urgent,
                 item.next_lane, item.was_held, item.held, item.alone)
            )  # fmt: skip
    return list(plans), groups


_EVENT_FIELDS = Event.__struct_fields__
_encode = msgspec.json.Encoder().encode


def _as_json(event: Event) -> str:
    return _encode(event).decode()


def flat(event: Event) -> list[str | int]:
    """An event's fields, one after the other, as a stream entry takes them."""
    parts: list[str | int] = []
    for name, value in zip(_EVENT_FIELDS, astuple(event), strict=True):
        if value != "":
            parts += (name, value)
    return parts


def rows(event: Event, entry: str, arranged: Arranged, why: str = "") -> Iterable[PlanRow]:
    """A plan in chunks; a small one is a single row. `number` is filled in after the first chunk's answer."""
    fields = flat(event)
    _, lane, urgent, *_ = arranged.jobs[-1]
    last = f"{len(arranged.jobs) - 1} {lane} {urgent}"
    for offset in range(0, len(arranged.jobs), CHUNK):
        part = arranged.jobs[offset : offset + CHUNK]
        final = offset + CHUNK >= len(arranged.jobs)
        yield PlanRow(
            event.deletion, entry, 0, offset, part, final, arranged.stages if final else [],
            arranged.release, arranged.chains, fields, last, why if final else "",
        )  # fmt: skip


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
                part = [(event.deletion, flat(event), _as_json(event)) for event in events[first : first + CHUNK]]
                task = group.create_task(self._move("publish", part))
                await asyncio.sleep(0)
                if last is not None:
                    answers += _published(await last)
                last = task
        return answers if last is None else answers + _published(last.result())

    async def plan(self, plans: Sequence[PlanRow]) -> list[Planned]:
        answer: list[Planned] = _planned(await self._move("plan", plans))
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
        moved, left = _numbers(await self._move("open", [most]))
        return moved, left

    async def look(self, most: int, moment: timedelta = MOMENT, *, alone: bool = False) -> Look:
        """`alone` sets a job that is to be tried alone aside for this caller; else it is only named."""
        answer: Look = _look(await self._move("look", [most, ms(moment), int(alone)]))
        return answer

    async def take(self, worker: str, lease: timedelta, wants: Sequence[Want], version: int = VERSION) -> Taken:
        args = [worker, ms(lease), version, wants]
        answer: Taken = _taken(await self._move("take", args))
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

        late, opening = _late(await self._move("settle", args))
        refused = {(fence, job) for (_, fence), jobs in zip(order, late, strict=True) for job in jobs}
        if not refused:
            return Settled([item.fence for item in last], opening)
        accepted = [0 if (item.fence, item.job) in refused else item.fence for item in last]
        return Settled(accepted, opening)

    async def renew(
        self, worker: str, lease: timedelta, batches: Sequence[tuple[str, int]], patience: timedelta
    ) -> tuple[int, list[int]]:
        """Batches are (lane, fence); answers the time and the fences that are ours no longer."""
        return _renewed(await self._move("renew", [worker, ms(lease), batches], patience=patience))

    async def reclaim(
        self,
        *,
        deaths: int = 3,
        silence: timedelta,
        storm: timedelta = timedelta(seconds=60),
        deaths_in_all: int = 10,
        most: int = 200,
    ) -> Reclaimed:
        args = [most, deaths, ms(silence), ms(storm), deaths_in_all]
        answer: Reclaimed = _reclaimed(await self._move("reclaim", args))
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
        args = [worker, ms(silent), deaths, ms(silence), ms(storm), deaths_in_all]
        answer: Claimed = _claimed(await self._move("claim", args))
        return answer

    async def requeue(
        self,
        cursor: str = "0",
        most: int = 50,
        jobs: int = 1000,
        grace: timedelta = timedelta(seconds=30),
        version: int = VERSION,
    ) -> tuple[str, int, int]:
        return _stepped(await self._move("requeue", [cursor, most, jobs, ms(grace), version]))

    async def mend(
        self, cursor: str = "0", most: int = 50, grace: timedelta = timedelta(seconds=30)
    ) -> tuple[str, int, int]:
        return _stepped(await self._move("mend", [cursor, most, ms(grace)]))

    async def hold(self, events: Sequence[Kept]) -> int:
        # Raw fields are copied by the script: bytes that are no text can't travel as arguments.
        kept: int = _numbers(await self._move("hold", events))[0]
        return kept

    async def unhold(self, member: str, *, replay: bool, who: str, event: list[Any] | None = None) -> str:
        word: str = _words(await self._move("unhold", [member, int(replay), who, event or []]))[0]
        return word

    async def reconsider(self, deletions: Sequence[tuple[str, int]], why: str, most: int = CHUNK) -> list[Reconsidered]:
        """One step: deletions, each with the number of its job to begin with, and at most so many jobs in all."""
        args = [why, _EVENT_FIELDS, most, deletions]
        answer: list[Reconsidered] = _reconsidered(await self._move("reconsider", args))
        return answer

    async def recall(self, deletions: Sequence[str], fields: Sequence[str]) -> list[list[str]]:
        """Fields of deletions' records, in their order; an absent one is empty."""
        found: list[list[str]] = []
        for first in range(0, len(deletions), CHUNK):
            found += _recalled(await self._move("recall", [fields, deletions[first : first + CHUNK]]))
        return found

    async def retry(self, job: str, who: str) -> str:
        word: str = _words(await self._move("retry", [job, who]))[0]
        return word

    async def abandon(self, job: str, who: str) -> str:
        word: str = _words(await self._move("abandon", [job, who]))[0]
        return word

    async def withdraw(self, deletion: str = "", why: str = "", most: int = 200) -> tuple[str, int]:
        """One step; answers the deletion's state and how many deletions have jobs left to cancel."""
        return _woken(await self._move("withdraw", [deletion, why, most]))

    async def pause(self, lane: str, *, stop: bool, who: str) -> bool:
        return bool(_numbers(await self._move("pause", [lane, int(stop), who]))[0])

    async def wake(self, place: str) -> int:
        """Score anew the lanes that waited for a budget."""
        cursor, woken = "0", 0
        while True:
            cursor, part = _woken(await self._move("wake", [place, cursor]))
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
        deletions, emptied = _numbers(await self._move("expire", args))
        return deletions, emptied

    async def survey(self, every: timedelta = timedelta(0)) -> None:
        """Bring the numbers for dashboards up to date."""
        while not _numbers(await self._move("survey", [1000, ms(every)]))[0]:
            pass

    async def attend(self, replication_id: str, known_epoch: str) -> Attended:
        args = [self.keys.shards, replication_id, known_epoch, secrets.token_hex(8)]
        answer: Attended = _attended(await self._move("attend", args))
        return answer
