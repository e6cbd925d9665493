"""Timeline of one deletion from the audit: attempts with their workers and outcomes, and decisions.
The audit is one stream per shard, which is read in pages within the deletion's lifetime. A reshard does not move it, so
that the streams of former shards are read as well."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from service.engine.batch_reads import batch, text, texts
from service.engine.installation import Installation
from service.engine.views.deletions import DeletionDetails, DeletionView

PAGE: Final = 500
_MARGIN_MS: Final = 5_000


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `what` is `taken`, a decision, or an outcome."""

    at: datetime
    what: str
    job: str
    who: str
    why: str


class TimelineLine(NamedTuple):
    """Equal entries merged: how often they occurred from `at` to `until`, and for which jobs."""

    at: datetime
    until: datetime
    what: str
    why: str
    times: int
    jobs: tuple[str, ...]


class TimelinePage(NamedTuple):
    """The entries about the deletion on one page, the number of audit entries read so far, and up to which time."""

    moments: list[TimelineEntry]
    read: int
    upto: datetime


async def timeline(installation: Installation, view: DeletionView) -> AsyncIterator[TimelinePage]:
    """The audit from the publication on, in pages."""
    caller = installation.shard_of(view.id).caller
    low, high = bounds(view, caller.offset_ms)
    ends = await _places(installation, view, low, high)
    starts, reached, read = dict.fromkeys(ends, str(low)), dict.fromkeys(ends, low), 0
    while starts:
        # All streams are read up to the same time: the one that is furthest behind comes next.
        stream = min(starts, key=lambda name: reached[name])
        command: tuple[Any, ...] = ("XRANGE", stream, starts[stream], ends[stream], "COUNT", PAGE)
        (entries,) = await batch(caller, [command])
        read += len(entries)
        found = [moment for entry, fields in entries for moment in entries_about(view.id, text(entry), texts(fields))]
        if len(entries) < PAGE:
            del starts[stream]
        else:
            last = text(entries[-1][0])
            starts[stream], reached[stream] = f"({last}", int(last.partition("-")[0])
        if entries:
            behind = min((reached[name] for name in starts), default=None)
            yield TimelinePage(found, read, _time(text(entries[-1][0]) if behind is None else str(behind)))


async def _places(installation: Installation, view: DeletionView, low: int, high: str) -> dict[str, str]:
    """The streams that may have entries and where they end: that of its shard and, up to the time of the last reshard,
    those of all former shards."""
    own = installation.shard_of(view.id)
    places = {f"{own.stem}audit": high}
    command = ("HMGET", f"{installation.shards[0].stem}meta", "resharded_at", "resharded_widest")
    ((at, widest),) = await batch(own.caller, [command])
    if at is None or low > int(at) + _MARGIN_MS:
        return places
    until = int(at) + _MARGIN_MS
    for number in range(int(widest)):
        end = str(until if high == "+" else min(until, int(high)))
        places.setdefault(f"{installation.keys.stem(number)}audit", end)
    return places


def milestones(story: DeletionDetails) -> list[TimelineEntry]:
    """Entries from the records themselves, which remain after the audit has expired."""
    view = story.deletion
    told = [
        (view.object_at, "happened", "as the event says"),
        (view.published_at, "published", ""),
        (view.held_since if view.held_why else None, view.state, view.held_why),
        (view.planned_at, "planned", f"{view.jobs} jobs in {len(story.stages)} stages"),
        (view.done_at, view.state, ""),
    ]
    for stage in story.stages:
        named = f"{stage.chain}, {stage.jobs} jobs"
        told += [(stage.opened_at, f"stage {stage.number} opened", named)]
        told += [(stage.closed_at, f"stage {stage.number} closed", named)]
    return [TimelineEntry(at=at, what=what, job="", who="", why=why) for at, what, why in told if at]


def merge_repeats(moments: Sequence[TimelineEntry]) -> list[TimelineLine]:
    """Merges repeated entries of one job or of the deletion itself, and equal consecutive entries of different jobs. A
    different entry in between begins a new line."""
    stretches: dict[str, dict[tuple[str, str], TimelineLine]] = {}
    repeats, lines = set[str](), list[TimelineLine]()
    for one in moments:
        stretch, told = stretches.setdefault(one.job, {}), (one.what, one.why)
        if told in stretch:
            repeats.add(one.job)
            stretch[told] = stretch[told]._replace(until=one.at, times=stretch[told].times + 1)
            continue
        if one.job in repeats:
            repeats.remove(one.job)
            lines += stretch.values()
            stretch.clear()
        stretch[told] = TimelineLine(one.at, one.at, one.what, one.why, 1, (one.job,) if one.job else ())
    lines += [line for stretch in stretches.values() for line in stretch.values()]
    lines.sort(key=lambda line: line.at)
    return [_joined(list(same)) for _, same in groupby(lines, lambda line: (line.what, line.why, bool(line.jobs)))]


def _joined(lines: Sequence[TimelineLine]) -> TimelineLine:
    """One line for equal consecutive lines of several jobs."""
    jobs = tuple(dict.fromkeys(job for line in lines for job in line.jobs))
    until, times = max(line.until for line in lines), sum(line.times for line in lines)
    return lines[0]._replace(until=until, times=times, jobs=jobs)


def bounds(view: DeletionView, offset_ms: int) -> tuple[int, str]:
    """The range of audit ids in which a deletion's entries can be. Ids have the server's own clock, records the clock
    of scripts; they differ in tests, so that the wider range is used."""
    starts = [int(view.entry.partition("-")[0])] if view.entry.partition("-")[0].isdecimal() else []
    if view.published_at:
        starts += [_ms(view.published_at), _ms(view.published_at) - offset_ms]
    ends = [_ms(view.done_at), _ms(view.done_at) - offset_ms] if view.done_at else []
    return max(0, min(starts, default=0) - _MARGIN_MS), str(max(ends) + _MARGIN_MS) if ends else "+"


def entries_about(deletion: str, entry: str, fields: Mapping[str, str]) -> list[TimelineEntry]:
    """The timeline entries of one audit entry for this deletion, if any."""
    at, who = _time(entry), fields.get("worker", "")
    match fields.get("entry"):
        case "intent":
            jobs = _jobs(deletion, fields.get("jobs", ""))
            return [TimelineEntry(at=at, what="taken", job=job, who=who, why=fields.get("lane", "")) for job in jobs]
        case "outcome":
            return _outcomes(deletion, at, who, fields)
        case "decision" if _concerns(deletion, fields.get("id", "")):
            job = fields["id"].removeprefix("job:") if "#" in fields["id"] else ""
            return [TimelineEntry(at=at, what=fields.get("what", ""), job=job, who="", why=fields.get("why", ""))]
        case _:
            return []


def _outcomes(deletion: str, at: datetime, who: str, fields: Mapping[str, str]) -> list[TimelineEntry]:
    """A field name is an outcome, its value the jobs that had it."""
    found = []
    for words, jobs in fields.items():
        if words in ("entry", "worker", "lane"):
            continue
        what, _, why = words.partition(": ")
        found += [TimelineEntry(at=at, what=what, job=job, who=who, why=why) for job in _jobs(deletion, jobs)]
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
