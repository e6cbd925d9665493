"""What the moves of a shard are given: wants, plans, events to keep, what became of attempts; as rows for the scripts.
Times are milliseconds there, and everything that a script does not look into goes as text."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from service.contract import Event
from service.engine.arrange import Arranged

CHUNK = 1000
"""Jobs or events in one call: what keeps a script short."""


def ms(duration: timedelta) -> int:
    return int(duration / timedelta(milliseconds=1))


class Want(NamedTuple):
    """What to take of a lane. `again` says when its budget has more; `alone` names a job to be tried alone."""

    lane: str
    urgent: int
    background: int
    cap: int
    again: int = 0
    alone: str = ""


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
    """An event that can't be planned. `where` is held, waiting or newer; after `again` ms it is planned again (0:
    never), which is doubled each time unless it is `exact`. A `suspect`, whose planners died, is planned alone then."""

    entry: str
    where: str
    why: str
    deletion: str = ""
    event: Sequence[str | int] = ()
    again: int = 0
    exact: bool = False
    suspect: bool = False


class Settlement(NamedTuple):
    """What becomes of one attempt's job. `delay` is in milliseconds from the moment it is sent.

    `record` is the new record without its closing brace: the script adds the server's times to it. `was` and `shown`
    are the indexes that show the job before and after it: `held`, `waiting`, or none. `of` says how many jobs were
    taken under the same token, 0 where that is not known. `soon` is the longest delay while something of the same
    deletion ended lately, 0 for none.
    """

    job: str
    fence: int
    kind: str
    delay: int
    stage: int
    lane: str
    urgent: int
    next_lane: str
    was: str
    shown: str
    alone: int
    record: str
    note: str
    of: int = 0
    soon: int = 0


class Grouped:
    """What a lane's batch came to, as `settle` takes it: the plain successes by their note, and the rest."""

    __slots__ = ("gone", "of", "rest")

    def __init__(self, of: int) -> None:
        self.gone: dict[str, tuple[list[str], dict[tuple[int, int], list[str]]]] = {}
        self.rest: list[Any] = []
        self.of = of

    def row(self, lane: str, fence: int) -> list[Any]:
        # All that were taken are known by their number; others by their text, with ids in the server's order.
        gone = [
            (
                note,
                len(jobs),
                " ".join(jobs if len(jobs) == self.of else sorted(jobs)),
                [(*place, fields) for place, fields in parts.items()],
            )
            for note, (jobs, parts) in self.gone.items()
        ]
        return [lane, fence, gone, self.rest, self.of]


def grouped(items: Sequence[Settlement]) -> tuple[list[str], dict[tuple[str, int], Grouped]]:
    """Settlements by lane and fence; plans are named once and then by number."""
    plans: dict[str, int] = {}
    groups: dict[tuple[str, int], Grouped] = {}
    seen: set[tuple[str, int]] = set()
    for job, fence, kind, delay, stage, lane, urgent, next_lane, was, shown, alone, record, note, of, soon in items:
        held_as = job, fence
        if held_as in seen:
            continue
        seen.add(held_as)
        name, _, number = job.rpartition(".")
        plan = plans.get(name)
        if plan is None:
            plan = plans[name] = len(plans) + 1
        batch = lane, fence
        group = groups.get(batch)
        if group is None:
            group = groups[batch] = Grouped(of)
        if kind == "gone" and not was:
            alike = group.gone.get(note)
            if alike is None:
                alike = group.gone[note] = ([], {})
            alike[0].append(job)
            place = plan, stage
            fields = alike[1].get(place)
            if fields is None:
                fields = alike[1][place] = []
            fields += (number, record + "}")
        else:
            group.rest.append(
                (kind, job, plan, number, stage, record, note, delay, urgent, next_lane, was, shown, alone, soon)
            )
    return list(plans), groups


EVENT_FIELDS = Event.__struct_fields__
_encode = msgspec.json.Encoder().encode


def as_json(event: Event) -> str:
    return _encode(event).decode()


def flat(event: Event) -> list[str | int]:
    """An event's fields, one after the other, as a stream entry takes them."""
    parts: list[str | int] = []
    for name, value in zip(EVENT_FIELDS, astuple(event), strict=True):
        if value != "":
            parts += (name, value)
    return parts


def rows(event: Event, entry: str, arranged: Arranged, why: str = "") -> Iterable[PlanRow]:
    """A plan in chunks; a small one is a single row. `number` is filled in after the first chunk's answer."""
    fields = flat(event)
    _, lane, urgent, *_ = arranged.jobs[-1]
    last = f"{len(arranged.jobs) - 1} {lane} {urgent}"
    if arranged.finale is not None:
        last += f" {arranged.finale}"
    for offset in range(0, len(arranged.jobs), CHUNK):
        part = arranged.jobs[offset : offset + CHUNK]
        final = offset + CHUNK >= len(arranged.jobs)
        yield PlanRow(
            event.deletion, entry, 0, offset, part, final, arranged.stages if final else [],
            arranged.release, arranged.chains, fields, last, why if final else "",
        )  # fmt: skip
