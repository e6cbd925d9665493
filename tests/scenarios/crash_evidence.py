"""Checks of the crash scenario against the provider's own log, the times of the kills, and the audit.

Every complaint is a sentence; the scenario passes without any."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.scenarios.audit import Attempt, Audit
from tests.scenarios.crash_seed import Key
from tests.scenarios.workers import Kill
from tests.simulated import JournalLine

UNDISTURBED = (("GET", 200), ("DELETE", 204), ("GET", 200))
"""The calls of a job that no kill met: look, remove, look whether it is gone."""

REFUSED = (("GET", 200),)
"""Those for a resource that has another owner."""


@dataclass(slots=True)
class Evidence:
    targets: frozenset[Key]
    foreign: frozenset[Key]
    log: list[JournalLine]
    audit: Audit
    jobs: dict[Key, str]
    """The job that removes each resource."""
    worker_kills: list[Kill]
    server_kills: list[Kill]
    leftovers: list[str] = field(default_factory=list)
    """What is still in Redis and should not be."""

    # ---- what the log says

    def deletes(self) -> dict[Key, list[JournalLine]]:
        """Every DELETE that reached the provider, whatever came of it."""
        found = defaultdict(list)
        for line in self.log:
            if line.method == "DELETE":
                found[line.account, line.id].append(line)
        return {key: sorted(lines, key=lambda line: line.arrived) for key, lines in found.items()}

    def calls(self) -> dict[Key, list[JournalLine]]:
        """Every request that concerned a resource, in the order of arrival."""
        found = defaultdict(list)
        for line in self.log:
            if line.what == "request":
                for name in line.id.split(","):
                    found[line.account, name].append(line)
        return {key: sorted(lines, key=lambda line: line.arrived) for key, lines in found.items()}

    # ---- what was in flight at a kill

    def hit(self, attempt: Attempt) -> bool:
        """Whether its worker, or the server, was killed between its intent and its outcome."""
        if any(kill.name == attempt.worker and _within(attempt, kill) for kill in self.worker_kills):
            return True
        return any(_within(attempt, kill) for kill in self.server_kills)

    def attempt_of(self, call: JournalLine) -> Attempt | None:
        """The attempt that a call belongs to: the caller's last intent for that job before it arrived."""
        job = self.jobs.get((call.account, call.id), "")
        mine = [
            attempt
            for attempt in self.audit.attempts.get(job, [])
            if attempt.worker == call.caller and attempt.intent <= call.arrived
        ]
        return mine[-1] if mine else None

    def hits(self) -> int:
        """Attempts that were in flight at a kill."""
        return sum(self.hit(attempt) for attempts in self.audit.attempts.values() for attempt in attempts)

    def kills_in_action(self) -> int:
        """Kills of workers that had jobs in their hands."""
        attempts = [attempt for found in self.audit.attempts.values() for attempt in found]
        return sum(
            any(attempt.worker == kill.name and _within(attempt, kill) for attempt in attempts)
            for kill in self.worker_kills
        )

    # ---- the judgement

    def complaints(self) -> list[str]:
        return [
            *self._removed(), *self._untouched(), *self._in_order(), *self._repeated(), *self._covered(),
            *self._condemned(), *self.leftovers,
        ]  # fmt: skip

    def _removed(self) -> Iterator[str]:
        gone = [(line.account, line.id) for line in self.log if line.what == "gone"]
        for key in self.targets - set(gone):
            yield f"{key} was never removed"
        if len(gone) != len(set(gone)):
            yield "the provider removed something twice"

    def _untouched(self) -> Iterator[str]:
        for key, lines in self.deletes().items():
            if key not in self.targets:
                yield f"{key} is outside the set, and {lines[0].caller} asked for its removal"
        for line in self.log:
            if line.what == "gone" and (line.account, line.id) not in self.targets:
                yield f"{line.account}/{line.id} is outside the set and gone"

    def _in_order(self) -> Iterator[str]:
        for line in self.log:
            if line.status == 409:
                yield f"{line.account}/{line.id} was asked for while {line.blocker} was there: its stage was early"

    def _repeated(self) -> Iterator[str]:
        """Nothing is called for again, unless the attempt before was in flight at a kill."""
        for key, lines in self.deletes().items():
            for earlier in lines[:-1]:
                attempt = self.attempt_of(earlier)
                if attempt is None or not self.hit(attempt):
                    yield f"{key} was deleted again though no kill met the call of {earlier.caller} before"
        calls = self.calls()
        for key in self.targets | self.foreign:
            attempts = self.audit.attempts.get(self.jobs.get(key, ""), [])
            expected = UNDISTURBED if key in self.targets else REFUSED
            seen = tuple((line.method, line.status) for line in calls.get(key, []))
            if seen != expected and not any(self.hit(attempt) for attempt in attempts):
                yield f"{key} met no kill, and yet its calls were {seen}; attempts: {attempts}"

    def _covered(self) -> Iterator[str]:
        """An intent before each destructive call; an outcome after it, unless a kill came in between."""
        yield from self.audit.faults
        for lines in self.deletes().values():
            for line in lines:
                attempt = self.attempt_of(line)
                if attempt is None:
                    yield f"no intent of {line.caller} announces its DELETE of {line.account}/{line.id}"
                elif not self.hit(attempt) and not attempt.called:
                    yield f"the DELETE of {line.account}/{line.id} by {line.caller} has no outcome: {attempt}"
                elif attempt.outcome is not None and attempt.called and attempt.outcome < line.arrived:
                    yield f"the outcome of {line.account}/{line.id} was written before its call: {attempt}"

    def _condemned(self) -> Iterator[str]:
        """What two kills met while it was planned, the second time alone, waits and is planned again."""
        waited: set[str] = set()
        for decision in self.audit.decisions:
            what, who, why = decision["what"], decision["id"], decision["why"]
            if what == "held" and why.startswith("its planner died") and len(self.worker_kills) > 1:
                waited.add(who.removeprefix("deletion:"))
            elif what != "relist" and not (what == "published again" and who.removeprefix("deletion:") in waited):
                yield f"decision: {dict(decision)}"


def _within(attempt: Attempt, kill: Kill) -> bool:
    return attempt.intent <= kill.over and kill.at <= attempt.end
