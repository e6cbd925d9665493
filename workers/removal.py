"""Removal of one kind of resource, the same for every provider: it is read, its owner is checked, consent is asked for,
it is deleted, and a later read proves its absence. Every attempt begins with a read, so repeating one after a crash is
harmless. Providers supply calls, errors and limits (`KindCalls`), collectors judge."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Never, Protocol, Self, TypeVar, cast

from service.coalesced_reads import CoalescedReads
from service.contract import Blocked, Draw, Gone, Job, JobRecord, Left, Pending, Refused, Verdict
from service.contract.kept import Abandoned
from workers.handlers import evidence_age
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Batch

REPEAT_AFTER: Final = timedelta(seconds=15)
LONGEST_REPEAT: Final = timedelta(minutes=30)
"""Delay before a delete is repeated that was accepted without effect; it doubles each time."""

GROWTH_STEPS: Final = 20
"""Delays stop growing after so many steps, so that exponents stay small."""

C = TypeVar("C")
R = TypeVar("R")
L = TypeVar("L")
A = TypeVar("A", bound="Attempt[Any, Any, Any]")
A_contra = TypeVar("A_contra", bound="Attempt[Any, Any, Any]", contravariant=True)


class RemovalProgress(NamedTuple):
    """What the attempts of a job hand on to each other, as text in its record: which incarnation of the name was read,
    how many deletes of it were accepted, how many reads followed the last one, and the state of the kind's own
    steps."""

    incarnation: str = ""
    deletes: int = 0
    checks: int = 0
    state: str = ""

    @classmethod
    def read(cls, text: str, expected: str = "") -> "RemovalProgress":
        """`expected` is the incarnation to remove if no earlier attempt has stored one. Text in another form is the
        state of the kind."""
        found = _PROGRESS.fullmatch(text)
        if found is None:
            return cls(expected, state=text)
        return cls(found[1], int(found[2]), int(found[3]), found[4] or "")

    def __str__(self) -> str:
        if not (self.incarnation or self.deletes or self.checks):
            return self.state
        return f"{self.incarnation} {self.deletes} {self.checks} {self.state}".rstrip()


def repeat_delay(deletes: int) -> timedelta:
    """When to repeat a delete that was accepted so many times without effect: later and later."""
    if deletes <= 1:
        return timedelta(0)
    factor: int = 2 ** min(GROWTH_STEPS, deletes - 2)
    return min(LONGEST_REPEAT, REPEAT_AFTER * factor)


FIRST: Final = RemovalProgress()
_PROGRESS: Final = re.compile(r"(\S*) (\d+) (\d+)(?: (.*))?", re.DOTALL)


class EarlyVerdict(Exception):
    """Ends an attempt with this verdict."""

    def __init__(self, verdict: Verdict | Exception) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


class Accepted(NamedTuple):
    """The response to a delete: no proof. `after` is when a read makes sense, if the provider says. A delete that the
    provider carries out as an operation of its own is followed first, in the lane of `operation`, a step of the kind
    whose state is `state`."""

    detail: str
    after: timedelta | None = None
    operation: str = ""
    state: str = ""


class ClaimedJob(NamedTuple):
    """A job, its claim as it was planned, and the judge of the claim's collector."""

    job: Job
    claim: Any
    judge: Any


def _nothing() -> None:
    """Consent needs no further check."""


async def _never_abandoned() -> None:
    """No plan was made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[C, R, L]):
    """One attempt at one job. `resource` was just read, and the judge confirmed the claim to it; `looked_up` is what
    the kind read for all jobs of the group. Nothing is deleted on the strength of these reads once they have
    expired."""

    job: Job
    claim: C
    judge: Any
    resource: R
    client: L
    batch: Batch
    progress: RemovalProgress = FIRST
    looked_up: Any = None
    expires: float = -1.0
    # Raises EarlyVerdict or NotCleared if the consent that was just given is not for this claim.
    confirm: Callable[[], None] = _nothing
    # Raises EarlyVerdict if the resource's job was abandoned in an earlier plan.
    leave_abandoned: Callable[[], Awaitable[None]] = _never_abandoned
    # Repeats the reads.
    reread: Callable[[], Awaitable["Attempt[C, R, L] | Verdict | Exception"]] | None = field(default=None, repr=False)

    @property
    def resume(self) -> str:
        """The state of the kind's own steps."""
        return self.progress.state

    async def clear(self) -> None:
        """Consent, to be awaited right before a call that changes anything. Raises NotCleared, EarlyVerdict and
        Outdated."""
        await self.leave_abandoned()
        await self.batch.clear(self.job)
        self.confirm()
        evidence_age.require_fresh(self.expires)

    async def refreshed(self) -> Self:
        """This attempt while its reads are fresh enough to ask for consent; else a new one from fresh reads. Raises
        EarlyVerdict if those leave nothing to do."""
        if self.reread is None or not evidence_age.is_aging(self.expires):
            return self
        found = await self.reread()
        if not isinstance(found, Attempt):
            raise EarlyVerdict(found)
        return cast("Self", found)

    def lane(self, operation: str) -> str:
        return f"{self.batch.lane.rpartition('/')[0]}/{operation}"

    def move_to(
        self, operation: str, detail: str, *, after: timedelta = timedelta(0), resume: str = "", kept: str = ""
    ) -> Pending:
        """Continues in the lane of another operation, which reserves the tokens for it, with this state."""
        text = str(self.progress._replace(state=resume))
        return Pending(after, detail, lane=self.lane(operation), resume=text, kept=kept)


class Step(Protocol[A_contra]):
    """What a kind does in a lane beside those of its delete and of the proof of absence. With `checks_ownership` the
    resource is read and its ownership checked first, as for a deletion; without, the step deletes nothing on the
    strength of a claim alone."""

    @property
    def checks_ownership(self) -> bool: ...

    @property
    def run(self) -> Callable[[A_contra], Awaitable[Verdict]]: ...


class Evidence(NamedTuple):
    """Resources that were just read, by id; an id that is missing is proven absent. `expires` is by the clock of
    `evidence_age`. `verdicts`, by job, are those of jobs that stop before the resource itself matters; an exception is
    a failed attempt."""

    found: Mapping[str, Any]
    expires: float
    verdicts: Mapping[str, Verdict | Exception] = {}


class KindCalls(Protocol[A]):
    """What a provider supplies for one kind. Operations are the last parts of lanes. Calls raise one of `errors`, which
    `verdict_for` translates."""

    @property
    def kind(self) -> str: ...

    @property
    def delete_operation(self) -> str: ...

    @property
    def check_operation(self) -> str: ...

    @property
    def steps(self) -> Mapping[str, Step[A]]: ...

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    @property
    def looks_first(self) -> bool:
        """Targets are named without a read: each begins in the lane of `check_operation`, whose reads also show whose a
        resource is."""

    @property
    def incarnation_may_change(self) -> bool:
        """Whether the same resource may later have another incarnation, so that a different one proves nothing."""

    def draws(self, lane: str) -> Sequence[Draw] | None: ...

    # ---- claims

    def claimed(self, job: Job, lane: str) -> ClaimedJob | Verdict | Exception:
        """The claim in a job's data, if it belongs to the lane and may be judged."""

    def expected(self, claimed: ClaimedJob) -> str:
        """The only incarnation that the claim is about; empty if it is about any that the judge confirms."""

    def confirm(self, claimed: ClaimedJob) -> None:
        """Called right after consent. Raises EarlyVerdict or NotCleared if it is not for this claim."""

    def should_recheck(self, job: Job, found: object) -> bool:
        """Whether a job that will reach no call, by what was `found`, asks for consent all the same."""

    # ---- reading

    async def connect(self, claimed: Sequence[ClaimedJob], batch: Batch) -> "Connected":
        """Clients for these claims, whose calls count against the meter of the batch."""

    async def read(self, operation: str, client: Any, claimed: Sequence[ClaimedJob]) -> Evidence:
        """Reads what an operation needs to know, in as few calls as possible."""

    def attempt(self, claimed: ClaimedJob, resource: Any, client: Any, batch: Batch) -> A: ...

    async def look_up(self, operation: str, attempts: Sequence[A]) -> Sequence[A]:
        """The attempts with what the kind reads for all of them."""

    def absent(self, resource: Any) -> str:
        """The state of a resource that is shown although it does not exist any more; empty if it exists."""

    def deleting(self, resource: Any) -> str:
        """What is known of its deletion, which goes on; empty if none does."""

    def incarnation(self, resource: Any) -> str:
        """Tells it from an earlier and a later resource of its id; empty if ids never come back."""

    def owns(self, claimed: ClaimedJob, resource: Any) -> Verdict | None:
        """The verdict where it is not the claim's."""

    def kept(self, resource: Any) -> Verdict | None:
        """The verdict where it stays, whoever owns it."""

    # ---- deleting

    async def obstacle(self, attempt: A, operation: str) -> Verdict | None:
        """What keeps an attempt from its call, beside what its reads have shown."""

    async def delete(self, attempt: A) -> Accepted | Verdict: ...

    def check_delay(self, checks: int) -> timedelta:
        """When to look for a resource after so many reads since its delete was accepted."""

    def verdict_for(self, error: Exception, claimed: ClaimedJob | None) -> Verdict | Exception:
        """Verdict for a job that the error stopped; an exception is a failed attempt."""


class Connected(NamedTuple):
    """Groups of jobs that one read serves, each with the clients of its jobs by job id; and, for jobs without a client,
    what is known of them."""

    groups: Sequence[Sequence[ClaimedJob]]
    clients: Mapping[str, Any]
    failed: Mapping[str, Verdict | Exception]


Prepared = Attempt[Any, Any, Any] | Verdict | Exception
"""A job after the reads of its group: the attempt to make, or the verdict if none is needed."""


class Removal(Generic[A]):
    """Handler of one kind. `kept_records` has the jobs that were abandoned in earlier plans."""

    def __init__(self, calls: KindCalls[A], kept_records: KeptRecords) -> None:
        self.kind, self._calls, self._kept_records = calls.kind, calls, kept_records

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._calls.draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        removal = _BatchRemoval(self._calls, batch, self._kept_records)
        try:
            await removal.begin()
            async for job, verdict in BatchAdapter(removal).attempt(batch):
                yield job, verdict
        finally:
            await removal.aclose()


class _BatchRemoval(Generic[A]):
    """The jobs of one batch. Each group of them is read once; then each job goes on by itself."""

    def __init__(self, calls: KindCalls[A], batch: Batch, kept_records: KeptRecords) -> None:
        self.kind, self._calls, self._batch = calls.kind, calls, batch
        self._abandoned = CoalescedReads[tuple[str, int], Never, Abandoned].by_key(
            lambda key: kept_records.abandoned_before(*key)
        )
        self._operation = batch.lane.rpartition("/")[2]
        self._claimed: dict[str, ClaimedJob] = {}
        self._failed: dict[str, Verdict | Exception] = {}
        self._clients: Mapping[str, Any] = {}
        self._reads: dict[str, asyncio.Task[dict[str, Prepared]]] = {}
        self._groups: dict[str, int] = {}
        self._rereads = CoalescedReads[int, ClaimedJob, dict[str, Prepared]](lambda _group, jobs: self._read(jobs))

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._calls.draws(lane)

    async def begin(self) -> None:
        for job in self._batch.jobs:
            found = self._calls.claimed(job, self._batch.lane)
            if isinstance(found, ClaimedJob):
                self._claimed[job.id] = found
            else:
                self._failed[job.id] = found
        connected = await self._calls.connect(list(self._claimed.values()), self._batch)
        self._failed |= connected.failed
        self._clients = connected.clients
        for number, group in enumerate(connected.groups):
            task = asyncio.ensure_future(self._read(group))
            self._reads |= dict.fromkeys((one.job.id for one in group), task)
            self._groups |= dict.fromkeys((one.job.id for one in group), number)

    async def aclose(self) -> None:
        tasks = set(self._reads.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._rereads.aclose()
        await self._abandoned.aclose()

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        try:
            found = await self._prepared(job)
            if self._calls.should_recheck(job, found):
                await batch.clear(job)
                if job.id in self._claimed:
                    self._calls.confirm(self._claimed[job.id])
            if isinstance(found, Attempt):
                found = await self._run(cast("A", await found.refreshed()))
        except EarlyVerdict as early:
            found = early.verdict
        except evidence_age.Outdated as outdated:
            # Without a call nothing failed: it is tried again, later and later.
            found = Blocked(str(outdated))
        except self._calls.errors as error:
            found = self._calls.verdict_for(error, self._claimed.get(job.id))
        if isinstance(found, Exception):
            raise found
        return found

    async def _prepared(self, job: Job) -> Prepared:
        if (failed := self._failed.get(job.id)) is not None:
            return failed
        return (await asyncio.shield(self._reads[job.id]))[job.id]

    # ---- reading

    async def _read(self, group: Sequence[ClaimedJob]) -> dict[str, Prepared]:
        calls, prepared = self._calls, dict[str, Prepared]()
        try:
            evidence = await calls.read(self._operation, self._clients[group[0].job.id], group)
            earlier = {_plan_of(one.job) for one in group if one.job.plan > 1}
            abandoned = {plan: await self._abandoned.read(plan) for plan in earlier}
            prepared = {one.job.id: self._judge(one, evidence, abandoned.get(_plan_of(one.job))) for one in group}
            attempts = [cast("A", one) for one in prepared.values() if isinstance(one, Attempt)]
            if attempts:
                prepared |= {one.job.id: one for one in await calls.look_up(self._operation, attempts)}
        except calls.errors as error:
            # Verdicts that are known already do not depend on the read that failed.
            for one in group:
                if isinstance(prepared.get(one.job.id), Attempt | None):
                    prepared[one.job.id] = calls.verdict_for(error, one)
        return prepared

    async def _read_again(self, one: ClaimedJob) -> Prepared:
        """The jobs of a batch that was delayed need it at about the same time, and share it. If that takes too long as
        well, the job is read alone."""
        found = (await self._rereads.read(self._groups[one.job.id], [one]))[one.job.id]
        if isinstance(found, Attempt) and evidence_age.is_aging(found.expires):
            return (await self._read([one]))[one.job.id]
        return found

    def _judge(self, one: ClaimedJob, evidence: Evidence, abandoned: Abandoned | None) -> Prepared:
        calls, job, checks = self._calls, one.job, self._operation == self._calls.check_operation
        if (early := evidence.verdicts.get(job.id)) is not None:
            return early
        progress = RemovalProgress.read(job.resume, calls.expected(one))
        resource = evidence.found.get(job.target)
        if resource is None:
            return Gone(absent=checks and calls.looks_first and not progress.incarnation)
        attempt = replace(
            calls.attempt(one, resource, self._clients[job.id], self._batch),
            progress=progress, expires=evidence.expires, confirm=partial(calls.confirm, one),
            leave_abandoned=partial(self._leave_abandoned, job, calls.incarnation(resource)),
        )  # fmt: skip
        step = calls.steps.get(self._operation)
        if step is not None and not step.checks_ownership:
            return attempt
        return self._judge_resource(one, attempt, abandoned, checks=checks)

    def _judge_resource(self, one: ClaimedJob, attempt: A, abandoned: Abandoned | None, *, checks: bool) -> Prepared:
        calls, resource, progress = self._calls, attempt.resource, attempt.progress
        if state := calls.absent(resource):
            return Gone(f"it is {state}")
        incarnation = calls.incarnation(resource)
        if progress.incarnation and incarnation != progress.incarnation:
            return Gone(f"it is gone, and another one has its name by now ({incarnation})")
        if abandoned is not None and (left := self._left_by_decision(one.job, incarnation, abandoned)) is not None:
            return left
        # A read that only proves absence may not show whose a resource is.
        shown = not checks or calls.looks_first
        if shown and (objection := calls.owns(one, resource)) is not None:
            return objection
        if going := calls.deleting(resource):
            return self._check_later(
                attempt, progress._replace(incarnation=incarnation, checks=progress.checks + 1), going
            )
        if shown and (kept := calls.kept(resource)) is not None:
            return kept
        if checks:
            return self._delete_next(attempt, progress._replace(incarnation=incarnation, checks=0))
        reread = partial(self._read_again, one) if not calls.looks_first else None
        # What goes on in another lane is about this incarnation.
        return replace(attempt, reread=reread, progress=progress._replace(incarnation=incarnation))

    # ---- abandoned in an earlier plan

    async def _leave_abandoned(self, job: Job, incarnation: str) -> None:
        """Only earlier plans matter: a plan names a resource once."""
        if job.plan > 1:
            left = self._left_by_decision(job, incarnation, await self._abandoned.read(_plan_of(job)))
            if left is not None:
                raise EarlyVerdict(left)

    def _left_by_decision(self, job: Job, incarnation: str, abandoned: Abandoned) -> Verdict | None:
        """Verdict for a resource that an operator abandoned before its deletion was planned anew. Where names can be
        used again, that is the incarnation which the abandoned job was planned for or has read, or any if it knew none,
        or only one that may have changed."""
        if abandoned.unknown:
            return Refused(
                f"{abandoned.unknown} jobs of an earlier plan were abandoned, and their records can't be read: this "
                f"may be one of their resources, which are to stay; `knell jobs abandon` releases the object without it"
            )
        incarnations = () if self._calls.incarnation_may_change else ("", incarnation)
        if any(_is_about(record, job, incarnations) for record in abandoned.jobs):
            return Left("left where it is: its job was abandoned before the deletion was planned anew")
        return None

    # ---- deleting

    async def _run(self, attempt: A) -> Verdict:
        calls = self._calls
        if (obstacle := await calls.obstacle(attempt, self._operation)) is not None:
            return obstacle
        step = calls.steps.get(self._operation)
        if step is not None:
            return await step.run(attempt)
        if self._operation != calls.delete_operation:
            return attempt.move_to(
                calls.delete_operation, "nothing is done to it in this lane", resume=attempt.progress.state
            )
        await attempt.clear()
        answer = await calls.delete(attempt)
        if not isinstance(answer, Accepted):
            return answer
        progress = RemovalProgress(
            calls.incarnation(attempt.resource), attempt.progress.deletes + 1, state=answer.state
        )
        return self._check_later(attempt, progress, answer.detail, answer.after, answer.operation)

    def _check_later(
        self, attempt: A, progress: RemovalProgress, detail: str, after: timedelta | None = None, operation: str = ""
    ) -> Pending:
        """To the lane where its absence is proven, or first to that of another operation."""
        wait = after if after is not None else self._calls.check_delay(progress.checks)
        lane = attempt.lane(operation or self._calls.check_operation)
        return Pending(wait, detail, lane=lane, resume=str(progress))

    def _delete_next(self, attempt: A, progress: RemovalProgress) -> Pending:
        """To the lane in which it is deleted: for the first time, or again, later and later."""
        deletes, wait = progress.deletes, repeat_delay(progress.deletes)
        state = f" ({attempt.resource.state})" if attempt.resource.state else ""
        text = f"it is there{state}" + (f", although its deletion was accepted {deletes} times" if deletes else "")
        return Pending(wait, text, lane=attempt.lane(self._calls.delete_operation), resume=str(progress))


def _plan_of(job: Job) -> tuple[str, int]:
    return job.deletion, job.plan


def _is_about(record: JobRecord, job: Job, incarnations: Sequence[str]) -> bool:
    """Whether it was a job of that resource, with one of these incarnations, or any if none are given."""
    if (record.kind, record.target) != (job.kind, job.target):
        return False
    known = RemovalProgress.read(record.resume, record.incarnation).incarnation or record.incarnation
    return not incarnations or known in incarnations
