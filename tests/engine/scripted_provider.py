"""In-memory provider for engine tests: targets that exist until they are removed, scripted verdicts, a log of calls.

It is handler and planner at once, so a test says in one place what exists and how it behaves."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from service.contract import Draw, Event, Gone, Hold, Job, Plan, Strategy, Target, Verdict
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.protocol import Batch

LANE = "sim/acct/delete"

Act = Callable[[Job, Batch], Awaitable[Verdict]]
Answer = Verdict | Exception | Act
PlanAnswer = Plan | Hold | Exception | Callable[[Event], Awaitable[Plan | Hold]]


def event(uid: str, **fields: object) -> Event:
    """An event of a source that the tests' planner knows."""
    named = {"cluster": "c1", "resource": "things", "name": f"name-{uid}", "source": "tests"} | fields
    return Event(uid=uid, **named)  # type: ignore[arg-type]


def thing(
    name: str,
    lane: str = LANE,
    *,
    chain: str = "main",
    stage: int = 0,
    strategy: Strategy = "required",
    data: str = "",
    after: timedelta = timedelta(0),
) -> Target:
    return Target(kind="thing", id=name, lane=lane, chain=chain, stage=stage, strategy=strategy, data=data, after=after)


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """One destructive call that reached the outside."""

    target: str
    lane: str
    at: float
    job: Job


@dataclass(slots=True)
class ScriptedProvider:
    """`answers` are given one after the other to the attempts at a target; after the last, it goes at once."""

    answers: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    plans: dict[str, PlanAnswer] = field(default_factory=dict)
    always: Answer | None = None
    draws_on: Callable[[str], Sequence[Draw] | None] = lambda lane: ()
    calls: list[ProviderCall] = field(default_factory=list)
    batches: list[tuple[str, list[str]]] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    kind: str = "thing"

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return None if lane.endswith("/release") else self.draws_on(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        self.batches.append((batch.lane, [job.target for job in batch.jobs]))
        async for job, verdict in BatchAdapter(self).attempt(batch):
            yield job, verdict

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        waiting = self.answers[job.target]
        answer = waiting.pop(0) if waiting else self.always
        if callable(answer):
            return await answer(job, batch)
        await self.call(job, batch)
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else Gone()

    async def call(self, job: Job, batch: Batch) -> None:
        """The destructive call itself, after a last look whether the way is free."""
        await batch.clear(job)
        self.calls.append(ProviderCall(job.target, batch.lane, time.monotonic(), job))

    async def plan(self, event: Event) -> Plan | Hold:
        self.planned.append(event.uid)
        answer = self.plans.get(event.uid)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return Plan([thing(event.uid)])
        return await answer(event) if callable(answer) else answer

    def has(self, uid: str, targets: Iterable[Target]) -> Event:
        """An object of that uid owns these targets; the answer is the event of its going."""
        self.plans[uid] = Plan(list(targets))
        return event(uid)

    @property
    def called(self) -> list[str]:
        return [call.target for call in self.calls]
