"""What the audit says of one deletion: who took its jobs when, what came of each attempt, what was decided.
The audit is one stream for a whole shard, so it is read in pages, within the deletion's lifetime."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from service.stream.installation import Installation
from service.stream.views.deletions import DeletionView, Story
from service.stream.views.reading import batch, text, texts

PAGE: Final = 500
_MARGIN_MS: Final = 5_000


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `what` is taken, a decision, or the outcome's own words."""

    at: datetime
    what: str
    job: str
    who: str
    why: str


class Page(NamedTuple):
    """What a page of the audit had for us, how many entries were read so far, and up to which time."""

    moments: list[Moment]
    read: int
    upto: datetime


async def timeline(installation: Installation, view: DeletionView) -> AsyncIterator[Page]:
    """The audit from the publication on, page by page; whoever has seen enough stops asking."""
    shard = installation.shard_of(view.id)
    low, high = bounds(view, shard.caller.offset_ms)
    read, start = 0, str(low)
    while True:
        command: tuple[Any, ...] = ("XRANGE", f"{shard.stem}audit", start, high, "COUNT", PAGE)
        (entries,) = await batch(shard.caller, [command])
        if not entries:
            return
        read += len(entries)
        found = [moment for entry, fields in entries for moment in about(view.id, text(entry), texts(fields))]
        last = text(entries[-1][0])
        yield Page(found, read, _time(last))
        if len(entries) < PAGE:
            return
        start = f"({last}"


def milestones(story: Story) -> list[Moment]:
    """What the records themselves tell: these times stay when the audit's entries have expired."""
    view = story.deletion
    told = [
        (view.object_at, "happened", "as the event says"),
        (view.published_at, "published", ""),
        (view.held_at if view.held_why else None, "held", view.held_why),
        (view.planned_at, "planned", f"{view.jobs} jobs in {len(story.stages)} stages"),
        (view.done_at, view.state, ""),
    ]
    for stage in story.stages:
        named = f"{stage.chain}, {stage.jobs} jobs"
        told += [(stage.opened_at, f"stage {stage.number} opened", named)]
        told += [(stage.closed_at, f"stage {stage.number} closed", named)]
    return [Moment(at=at, what=what, job="", who="", why=why) for at, what, why in told if at]


def bounds(view: DeletionView, offset_ms: int) -> tuple[int, str]:
    """Where in the audit a deletion's entries can be. Entries are named by the server's own clock, records by
    the clock that scripts see; in tests these differ, so the wider of the two is taken."""
    starts = [int(view.entry.partition("-")[0])] if view.entry.partition("-")[0].isdecimal() else []
    if view.published_at:
        starts += [_ms(view.published_at), _ms(view.published_at) - offset_ms]
    ends = [_ms(view.done_at), _ms(view.done_at) - offset_ms] if view.done_at else []
    return max(0, min(starts, default=0) - _MARGIN_MS), str(max(ends) + _MARGIN_MS) if ends else "+"


def about(deletion: str, entry: str, fields: Mapping[str, str]) -> list[Moment]:
    """What one audit entry says of this deletion, which may be nothing."""
    at, who = _time(entry), fields.get("worker", "")
    match fields.get("entry"):
        case "intent":
            jobs = _jobs(deletion, fields.get("jobs", ""))
            return [Moment(at=at, what="taken", job=job, who=who, why=fields.get("lane", "")) for job in jobs]
        case "outcome":
            return _outcomes(deletion, at, who, fields)
        case "decision" if _concerns(deletion, fields.get("id", "")):
            job = fields["id"].removeprefix("job:") if "#" in fields["id"] else ""
            return [Moment(at=at, what=fields.get("what", ""), job=job, who="", why=fields.get("why", ""))]
        case _:
            return []


def _outcomes(deletion: str, at: datetime, who: str, fields: Mapping[str, str]) -> list[Moment]:
    """A field is an outcome in words, its value the jobs that had it."""
    found = []
    for words, jobs in fields.items():
        if words in ("entry", "worker", "lane"):
            continue
        what, _, why = words.partition(": ")
        found += [Moment(at=at, what=what, job=job, who=who, why=why) for job in _jobs(deletion, jobs)]
    return found


def _jobs(deletion: str, words: str) -> list[str]:
    if deletion not in words:
        return []
    return re.findall(rf"(?:(?<=\s)|^)({re.escape(deletion)}#\d+\.\d+)(?=\s|$)", words)


def _concerns(deletion: str, subject: str) -> bool:
    bare = subject.removeprefix("deletion:").removeprefix("job:")
    return bare == deletion or bare.startswith(f"{deletion}#")


def _time(entry: str) -> datetime:
    return datetime.fromtimestamp(int(entry.partition("-")[0]) / 1000, UTC)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
