"""Audit of a scenario: its attempts from intent to outcome, with their workers.

Times are those of the server's entry ids, in seconds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STEP = 5000


@dataclass(slots=True)
class Attempt:
    """From the entry of intent to the entry of the outcome, if it was ever written, or to the next intent."""

    job: str
    worker: str
    intent: float
    outcome: float | None = None
    note: str = ""
    superseded: float | None = None

    @property
    def end(self) -> float:
        """Until then it may have been under way."""
        return min((at for at in (self.outcome, self.superseded) if at is not None), default=math.inf)

    @property
    def called(self) -> bool:
        """Whether the outcome says that a destructive call was made."""
        return self.note.partition(":")[0].endswith(" called")


@dataclass(slots=True)
class Audit:
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    """Attempts at each job, in their order."""
    decisions: list[Mapping[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Outcomes that no intent announced."""


def entries(client: Any, key: str) -> Iterable[tuple[str, dict[str, str]]]:
    """All entries of a stream, read in steps."""
    last = "-"
    while True:
        part = client.xrange(key, last, "+", count=STEP)
        yield from part
        if len(part) < STEP:
            return
        last = f"({part[-1][0]}"


def read_audit(found: Iterable[tuple[str, Mapping[str, str]]]) -> Audit:
    audit = Audit()
    for entry, fields in found:
        at = int(entry.partition("-")[0]) / 1000
        match fields["entry"]:
            case "intent":
                for job in fields["jobs"].split():
                    attempts = audit.attempts.setdefault(job, [])
                    if attempts:
                        attempts[-1].superseded = at
                    attempts.append(Attempt(job, fields["worker"], at))
            case "outcome":
                _end(audit, fields, at)
            case _:
                audit.decisions.append(fields)
    return audit


def _end(audit: Audit, fields: Mapping[str, str], at: float) -> None:
    for note, jobs in fields.items():
        if note in ("entry", "worker", "lane"):
            continue
        for job in jobs.split():
            attempt = next(
                (one for one in reversed(audit.attempts.get(job, [])) if one.worker == fields["worker"]), None
            )
            if attempt is None or attempt.outcome is not None:
                audit.faults.append(f"{job}: outcome {note!r} of {fields['worker']} without an intent")
            else:
                attempt.outcome, attempt.note = at, note
