"""From verdict to next state: what becomes of a job after one attempt.

Pure: the job, the verdict, the retry settings and the time go in, a settlement comes out.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from service.contract import Blocked, Gone, Job, Pending, Refused, Throttled, Verdict
from service.contract.targets import lane_fault
from service.settings import RetrySettings
from service.stream.engine import Settlement, ms
from workers.handlers.protocol import NotCleared

LONGEST = 500
"""Characters of a provider's words that are kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the settlement is made of; `delay` counts from the moment of the verdict."""

    kind: str
    delay: int
    fields: list[str | int]
    held: bool
    note: str
    lane: str = ""


def backoff(base: timedelta, cap: timedelta, count: int, jitter: Callable[[], float]) -> int:
    """Exponential with full jitter: anything up to base x 2^count, never above the cap."""
    return int(jitter() * min(ms(cap), ms(base) * 2 ** min(count, 30)))


def judge(
    job: Job,
    verdict: Verdict | Exception,
    retry: RetrySettings,
    now: int,
    jitter: Callable[[], float] = random.random,
) -> Outcome:
    """The one place where verdicts are matched."""
    outcome = _judge(job, verdict, retry, jitter)
    if job.deadline and outcome.kind not in ("gone", "back"):
        if now >= job.deadline:
            why = f"gave up at its deadline; last: {outcome.note}"
            return Outcome("dead", 0, [*outcome.fields, "last_error", why], False, why)
        if now + outcome.delay > job.deadline:
            return Outcome(outcome.kind, job.deadline - now, outcome.fields, outcome.held, outcome.note, outcome.lane)
    return outcome


def _judge(job: Job, verdict: Verdict | Exception, retry: RetrySettings, jitter: Callable[[], float]) -> Outcome:
    if isinstance(verdict, Exception):
        return _failed(job, verdict, retry, jitter)
    match verdict:
        case Gone(detail):
            return Outcome("gone", 0, ["verdict", "gone", "detail", detail] if detail else ["verdict", "gone"], False, detail)
        case Pending(check_after, detail, lane, resume):
            fault = lane_fault(lane) if lane else None
            if fault:
                return _failed(job, ValueError(fault), retry, jitter)
            fields: list[str | int] = ["verdict", "check", "detail", _short(detail), "waits", 0, "held", 0]
            if resume or job.resume:
                fields += ("resume", resume)
            return Outcome("check", ms(check_after), fields, False, _short(detail), lane or "")
        case Throttled(retry_after, detail):
            delay = ms(retry_after) if retry_after is not None else 500
            return Outcome("throttled", delay, ["verdict", "throttled", "detail", _short(detail)], bool(job.held), _short(detail))
        case Blocked(by, until):
            delay = ms(until) if until is not None else backoff(retry.blocked_base, retry.blocked_cap, job.waits, jitter)
            fields = ["verdict", "blocked", "detail", _short(by), "waits", job.waits + 1, "held", 0]
            return Outcome("blocked", delay, fields, False, _short(by))
        case Refused(reason):
            fields = ["verdict", "refused", "detail", _short(reason), "held", 1]
            return Outcome("refused", ms(retry.refused_recheck), fields, True, _short(reason))
        case _:
            assert_never(verdict)


def _failed(job: Job, error: Exception, retry: RetrySettings, jitter: Callable[[], float]) -> Outcome:
    if isinstance(error, NotCleared):
        return Outcome("back", error.wait_ms, [], bool(job.held), str(error))
    attempts = job.attempts + 1
    words = _short(f"{type(error).__name__}: {error}")
    held = job.required and attempts >= retry.held_after
    fields: list[str | int] = ["verdict", "retry", "attempts", attempts, "last_error", words, "held", int(held)]
    if not job.first_error:
        fields += ("first_error", words)
    return Outcome("retry", backoff(retry.base, retry.cap, attempts, jitter), fields, held, words)


def settlement(job: Job, lane: str, outcome: Outcome, *, called: bool) -> Settlement:
    """The outcome in the form that the `settle` move takes."""
    fields = list(outcome.fields)
    if job.alone and outcome.kind != "back":
        fields += ("alone", 0, "kills", 0, "fallen", 0, "suspect", "")
    note = outcome.kind + (" called" if called else "") + (f": {outcome.note}" if outcome.note else "")
    return Settlement(
        job.id, job.fence, outcome.kind, outcome.delay, job.deletion, job.stage, lane, job.urgent, outcome.lane,
        job.held, int(outcome.held), job.alone, fields, note,
    )  # fmt: skip


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"
