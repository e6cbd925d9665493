"""Arguments of the scripts of a shard: lane requests, plans, held events and settlements, encoded as rows.
Times are milliseconds; what a script does not interpret is passed as text."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from service.contract import Event
from service.engine.plan_layout import PlanLayout

CHUNK = 1000
"""Jobs or events in one call, which bounds the run time of a script."""


def ms(duration: timedelta) -> int:
    return int(duration / timedelta(milliseconds=1))


class LaneRequest(NamedTuple):
    """What to take from a lane. `again` is when its budget has more tokens; `alone` names a job to be tried alone."""

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


class UnplannedEvent(NamedTuple):
    """An event that can't be planned. `where` is held, waiting or newer; after `again` ms it is planned again (0:
    never), a time that is doubled each time unless it is `exact`. A `suspect`, whose planners died, is then planned
    alone."""

    entry: str
    where: str
    why: str
    deletion: str = ""
    event: Sequence[str | int] = ()
    again: int = 0
    exact: bool = False
    suspect: bool = False


class JobSettlement(NamedTuple):
    """The next state of a job after an attempt. `delay` is in milliseconds from the time of sending.

    `record` is the new record without its closing brace, because the script appends the server's times. `was` and
    `shown` are the indexes that list the job before and after: `held`, `waiting`, or none. `of` is the number of jobs
    taken under the same token, 0 where that is unknown. `soon` bounds the delay while a job of the same deletion ended
    recently, 0 for no bound."""

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


class LateTargets(NamedTuple):
    """Late targets of a job, and its next state as a settlement of the kind `found`. `rows` are its targets in the
    order of their stages."""

    settlement: JobSettlement
    rows: list[list[Any]]


class LaneOutcomes:
    """The settlements of a lane's batch, as `settle` takes them: plain successes grouped by their note, and the
    rest."""

    __slots__ = ("gone", "of", "rest")

    def __init__(self, of: int) -> None:
        self.gone: dict[str, tuple[list[str], dict[tuple[int, int], list[str]]]] = {}
        self.rest: list[Any] = []
        self.of = of

    def row(self, lane: str, fence: int) -> list[Any]:
        # A complete batch is verified by its number of jobs, others by their ids in the server's order.
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


def group_by_lane(items: Sequence[JobSettlement]) -> tuple[list[str], dict[tuple[str, int], LaneOutcomes]]:
    """Settlements by lane and fence; a plan is named once and then referred to by number."""
    plans: dict[str, int] = {}
    groups: dict[tuple[str, int], LaneOutcomes] = {}
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
            group = groups[batch] = LaneOutcomes(of)
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


def event_fields(event: Event) -> list[str | int]:
    """The fields of an event as a flat list for XADD."""
    parts: list[str | int] = []
    for name, value in zip(EVENT_FIELDS, astuple(event), strict=True):
        if value != "":
            parts += (name, value)
    return parts


def plan_rows(event: Event, entry: str, arranged: PlanLayout, why: str = "") -> Iterable[PlanRow]:
    """A plan in chunks; a small one is a single row. `number` is set after the reply to the first chunk."""
    fields = event_fields(event)
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
