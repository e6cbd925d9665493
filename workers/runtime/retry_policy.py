"""Retry policy: the next state of a job after an attempt, and the delay until the next one (backoff).

Pure: takes the job, the verdict, the retry settings and the time; returns the job's next record and delay.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from service.contract import (
    LONGEST_KEPT,
    Blocked,
    Found,
    Gone,
    Job,
    JobRecord,
    Left,
    Pending,
    Refused,
    Throttled,
    Verdict,
    encode_job_record,
)
from service.contract.targets import lane_fault
from service.engine.script_arguments import JobSettlement, ms
from service.masking import is_harmless, mask_text
from service.settings import RetrySettings
from workers.handlers.protocol import NotCleared

LONGEST = 500
"""Longest message of a provider that is stored, in characters."""


class Outcome(NamedTuple):
    """The kind of settlement, the delay in ms after the verdict, and the next record. `soon` is the longest delay while
    other jobs of the same deletion ended recently; 0 where that makes no difference."""

    kind: str
    delay: int
    record: JobRecord
    note: str = ""
    soon: int = 0


def backoff(base: timedelta, cap: timedelta, count: int, jitter: Callable[[], float]) -> int:
    """Exponential with full jitter: anything up to base x 2^count, never above the cap."""
    return int(jitter() * min(ms(cap), ms(base) * 2 ** min(count, 30)))


def outcome_of(
    job: Job,
    verdict: Verdict | Exception,
    retry: RetrySettings,
    now: int,
    jitter: Callable[[], float] = random.random,
) -> Outcome:
    """The outcome of one attempt. A best-effort job is given up at its deadline."""
    outcome = _outcome_of(job.record, verdict, retry, now, jitter)
    deadline = job.record.deadline
    if deadline and outcome.kind not in ("gone", "back"):
        if now >= deadline:
            why = _short(f"gave up at its deadline; last: {outcome.kind} {outcome.note}")
            dead = replace(_unshown(outcome.record), state="dead", last_error=why, last_at=now, due=0)
            return Outcome("dead", 0, dead, why)
        if now + outcome.delay > deadline:
            return outcome._replace(delay=deadline - now)
    return outcome


def _outcome_of(
    record: JobRecord, verdict: Verdict | Exception, retry: RetrySettings, now: int, jitter: Callable[[], float]
) -> Outcome:
    """The one place where verdicts are matched."""
    if isinstance(verdict, Exception):
        return _failed(record, verdict, retry, jitter)
    match verdict:
        case Gone(detail, absent):
            detail = _short(detail) if detail else ""
            gone = replace(_unshown(record), state="gone", verdict="gone", detail=detail, last_at=now, due=0)
            return Outcome("gone", 0, replace(gone, absent=1) if absent else gone, detail)
        case Pending(check_after, detail, lane, resume, kept, still):
            detail = _short(detail)
            note = f"{detail}: {kept}" if kept else detail
            fault = (lane_fault(lane) if lane else None) or (_kept_fault(kept, note) if kept else None)
            if fault:
                return _failed(record, ValueError(fault), retry, jitter)
            lane = lane or record.lane
            after = record if still and record.shown else replace(_unshown(record), detail=detail)
            checked = replace(after, verdict="check", waits=0, resume=resume, lane=lane)
            return Outcome("check", ms(check_after), checked, note)
        case Throttled(retry_after, detail):
            delay, detail = (500 if retry_after is None else ms(retry_after)), _short(detail)
            return Outcome("throttled", delay, replace(record, verdict="throttled", detail=detail), detail)
        case Blocked(by, until, unseen, person):
            by, held = _short(by), int(person)
            soon = ms(retry.unseen_cap) if unseen and until is None else 0
            delay = ms(until) if until is not None else _blocked_delay(record, retry, jitter)
            blocked = replace(record, verdict="blocked", detail=by, waits=record.waits + 1, held=held, waiting=1 - held)
            return Outcome("blocked", delay, blocked, by, soon)
        case Refused(reason):
            reason = _short(reason)
            refused = replace(record, verdict="refused", detail=reason, held=1, waiting=0)
            return Outcome("refused", ms(retry.refused_recheck), refused, reason)
        case Left(reason):
            reason = _short(reason)
            left = replace(_unshown(record), state="dead", verdict="left", detail=reason, last_at=now, due=0)
            return Outcome("dead", 0, left, reason)
        case Found(_, detail, resume):
            # Written by the append, which adds the targets; the job is due again once they have ended.
            detail = _short(detail)
            again = replace(_unshown(record), verdict="found", detail=detail, waits=0, resume=resume)
            return Outcome("found", 0, again, detail)
        case _:
            assert_never(verdict)


def _unshown(record: JobRecord) -> JobRecord:
    return replace(record, held=0, waiting=0)


def _blocked_delay(record: JobRecord, retry: RetrySettings, jitter: Callable[[], float]) -> int:
    return backoff(retry.blocked_base, retry.blocked_cap, record.waits, jitter)


def _failed(record: JobRecord, error: Exception, retry: RetrySettings, jitter: Callable[[], float]) -> Outcome:
    if isinstance(error, NotCleared):
        return _objected(record, error, retry) if error.refused else Outcome("back", error.wait_ms, record, str(error))
    attempts = record.attempts + 1
    words = _short(f"{type(error).__name__}: {error}")
    held = int(record.strategy == "required" and attempts >= retry.held_after)
    first = record.first_error or words
    failed = replace(
        record, verdict="retry", attempts=attempts, held=held, waiting=0, first_error=first, last_error=words
    )
    return Outcome("retry", backoff(retry.base, retry.cap, attempts, jitter), failed, words)


def _objected(record: JobRecord, error: NotCleared, retry: RetrySettings) -> Outcome:
    """A refused clearance is checked again soon at first, in case the mark was a mistake, then as rarely as any
    refusal, or when the objection says. If it can end without a person, the job is shown as waiting."""
    reason = _short(str(error))
    soon = ms(retry.blocked_base) * 2 ** min(record.waits, 30)
    seldom = ms(retry.refused_recheck)
    delay = min(soon, seldom, error.wait_ms or seldom)
    waits = int(error.waits)
    refused = replace(record, verdict="refused", detail=reason, waits=record.waits + 1, held=1 - waits, waiting=waits)
    return Outcome("refused", delay, refused, reason)


def settlement(job: Job, lane: str, outcome: Outcome, *, called: bool, of: int = 0) -> JobSettlement:
    """The outcome as an argument of the `settle` script; for a job that goes on, the server adds the times."""
    before, record = job.record, outcome.record
    if (before.alone or before.suspect) and outcome.kind != "back":
        record = replace(record, alone=0, kills=0, fallen=0, suspect="")
    if outcome.kind not in ("gone", "dead") and (record.due or record.last_at):
        record = replace(record, due=0, last_at=0)
    note = outcome.kind + (" called" if called else "") + (f": {outcome.note}" if outcome.note else "")
    moved = record.lane if record.lane != lane else ""
    return JobSettlement(
        job.id, job.fence, outcome.kind, outcome.delay, record.stage, lane, record.urgent, moved,
        before.shown, record.shown, before.alone, encode_job_record(record)[:-1], note, of, outcome.soon,
    )  # fmt: skip


def unreadable_settlement(job: str, fence: int, lane: str, why: str) -> JobSettlement:
    """Settlement of a job whose record can't be decoded: it is held unchanged."""
    return JobSettlement(job, fence, "unreadable", 0, 0, lane, 0, "", "", "held", 0, "", f"unreadable: {_short(why)}")


def _kept_fault(kept: str, note: str) -> str | None:
    """Why the text of `kept` can't be stored: it must be stored unchanged, so it is neither cut nor masked."""
    if len(kept.encode()) > LONGEST_KEPT:
        return f"what is to be kept of it is longer than {LONGEST_KEPT} bytes"
    return None if is_harmless(note) else "what is to be kept of it looks like a credential"


def _short(words: str) -> str:
    """A provider's message as it may be stored: without credentials, valid text, not too long."""
    words = mask_text(words).encode("utf-8", "replace").decode()
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"
