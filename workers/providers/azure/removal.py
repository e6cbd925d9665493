"""Removal handler of one kind of Azure resource: reads it, asks the judge of its claim whether it may go, deletes it,
and proves its absence by a later read. Every attempt begins with a read, so repeating one after a crash is harmless."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from service.contract import Blocked, Draw, Gone, Job, Left, Pending, Refused, Verdict
from workers.handlers import evidence_age
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.batch_tokens import BatchTokens, ClearanceTracker
from workers.handlers.evidence_age import Outdated, clear_until, fresh_until, retry_outdated
from workers.handlers.protocol import Batch, NotCleared
from workers.providers.azure.call_meters import BatchCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.claims import AzureClaim, AzureJudge, ClaimJudges, Consents, NotJudged
from workers.providers.azure.errors import AzureError, verdict_for
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.limits import LaneLimits
from workers.providers.azure.model import Accepted, AzureRemovalProgress, AzureResource, AzureScope, CallMeter

READ_AFTER: Final = timedelta(seconds=4)
"""When to read after an accepted delete if Azure does not say; the delay grows with every read."""

LONGEST_READ_AFTER: Final = timedelta(minutes=1)

FRESH_SIGNS: Final = timedelta(seconds=30)
"""How old the signs of life may be when a delete is sent."""

REPEAT_AFTER: Final = timedelta(seconds=15)
LONGEST_REPEAT: Final = timedelta(minutes=30)
"""Delay before a delete is repeated that was accepted without effect; it doubles each time."""

GROWTH_STEPS: Final = 20
"""Delays stop growing after so many steps, so that exponents stay small."""

Calling = Callable[[AzureScope, CallMeter], AzureCalls]


class AzureAttempt(NamedTuple):
    """One attempt of a job, in one of the lanes of its kind; `judge` is that of the claim's collector."""

    job: Job
    claim: AzureClaim
    judge: AzureJudge[Any]
    calls: AzureCalls
    batch: ClearanceTracker
    progress: AzureRemovalProgress

    @property
    def where(self) -> AzureScope:
        return self.claim.where


class AzureRemoval:
    """Handler of one kind. `calling` returns calls with a given meter; `judges` are those of the collectors of this
    process, which also fill `consents`."""

    def __init__(
        self, kind: AzureKind, calling: Calling, limits: LaneLimits, judges: ClaimJudges, consents: Consents
    ) -> None:
        self.kind = kind.name
        self._kind, self._calling, self._limits = kind, calling, limits
        self._judges, self._consents = judges, consents
        self._operations = {kind.reading, kind.removing, *([kind.host.removing] if kind.host is not None else ())}

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._limits.draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        tokens = BatchTokens(batch, self.draws(batch.lane) or (), len(batch.jobs))
        attempts, rest = _AzureBatchAttempts(self, tokens), {job.id for job in batch.jobs}
        try:
            async for job, verdict in BatchAdapter(attempts).attempt(batch):
                rest.discard(job.id)
                if isinstance(verdict, NotCleared) and job.id not in attempts.cleared:
                    tokens.handed_back()
                yield job, verdict
        except asyncio.CancelledError:
            # The runtime hands back jobs without a verdict, and returns their tokens, except for cleared jobs, whose
            # calls may have been made.
            for _ in rest - attempts.cleared:
                tokens.handed_back()
            raise
        finally:
            tokens.give_back()

    async def attempt_job(self, job: Job, batch: ClearanceTracker, tokens: BatchTokens) -> Verdict:
        try:
            claim, judge = self._judges.read(job.data)
        except NotJudged as reason:
            return Refused(str(reason))
        operation = batch.lane.rpartition("/")[2]
        if claim.where.lane(operation) != batch.lane:
            raise ValueError(f"it belongs to lane {claim.where.lane(operation)}, but was taken from lane {batch.lane}")
        if operation not in self._operations:
            raise ValueError(
                f"lane {batch.lane} is none of kind {self.kind}, so nothing is reserved in it for its calls"
            )
        if (fault := judge.objection(claim, job)) is not None:
            return Refused(fault)
        calls = self._calling(claim.where, BatchCallMeter(tokens))
        progress = AzureRemovalProgress.read(job.resume, claim.judged)
        attempt = AzureAttempt(job, claim, judge, calls, batch, progress)
        host = self._kind.host
        try:
            if operation == self._kind.removing:
                return await self._remove(attempt)
            if host is not None and operation == host.removing:
                return await self._remove_host(attempt, host)
            return await self._read_first(attempt)
        except Outdated as outdated:
            return retry_outdated(outdated)
        except AzureError as error:
            return verdict_for(error, attempt.where, judge.setting)

    # ---- reading

    async def _read_first(self, attempt: AzureAttempt) -> Verdict:
        """Reads only, deletes nothing. Most resources are already gone, removed by whoever made them."""
        found = await attempt.calls.read(self._kind, attempt.job.target)
        if found is None:
            return Gone(absent=not attempt.progress.guid)
        if (objection := self._evaluate(attempt, self._kind, found, attempt.progress.guid)) is not None:
            return objection
        progress = attempt.progress
        if found.going:
            return self._read_later(
                attempt, progress._replace(guid=found.guid, looks=progress.looks + 1), "it is being deleted"
            )
        wait = timedelta(0)
        if progress.deletes > 1:
            wait = min(LONGEST_REPEAT, REPEAT_AFTER * 2 ** min(GROWTH_STEPS, progress.deletes - 2))
        text = f"it is there ({found.state})"
        if progress.deletes:
            text += f", although its deletion was accepted {progress.deletes} times"
        after = str(progress._replace(guid=found.guid, looks=0))
        return Pending(wait, text, lane=attempt.where.lane(self._kind.removing), resume=after)

    def _evaluate(
        self, attempt: AzureAttempt, kind: AzureKind, found: AzureResource | None, guid: str
    ) -> Verdict | None:
        """Verdict that follows from the resource itself; None if it is the claim's, and the same one that was checked
        before."""
        if found is None:
            return Gone()
        if not found.guid:
            raise ValueError(f"Azure does not say which {kind.type} this is")
        if guid and found.guid != guid:
            return Gone(f"it is gone, and another one has its name by now ({found.guid})")
        if (objection := attempt.judge.owns(attempt.claim, found)) is not None:
            return objection
        spared = kind.spared(found)
        return Refused(f"{found.name}: {spared}") if spared else None

    def _read_later(
        self, attempt: AzureAttempt, progress: AzureRemovalProgress, text: str, after: timedelta | None = None
    ) -> Pending:
        """Back to the read lane, where its absence is proven."""
        wait = (
            after
            if after is not None
            else min(LONGEST_READ_AFTER, READ_AFTER * 1.5 ** min(GROWTH_STEPS, max(0, progress.looks - 1)))
        )
        return Pending(wait, text, lane=attempt.where.lane(self._kind.reading), resume=str(progress))

    # ---- removing

    async def _remove(self, attempt: AzureAttempt) -> Verdict:
        started = evidence_age.now()
        await attempt.judge.check_alive(attempt.claim, self._kind, attempt.job)
        if self._kind.host is not None and (waits := await self._check_host(attempt, self._kind.host)) is not None:
            return waits
        found = await attempt.calls.read(self._kind, attempt.job.target)
        objection = self._evaluate(attempt, self._kind, found, attempt.progress.guid)
        if objection is None and found is not None:
            objection = await self._check_not_in_use(attempt, found)
        if objection is not None or found is None:
            return objection or Gone()
        await self._clear(attempt, started)
        accepted = await attempt.calls.delete(self._kind, attempt.job.target)
        return self._after_delete(attempt, accepted, attempt.progress._replace(guid=found.guid))

    async def _clear(self, attempt: AzureAttempt, started: float) -> None:
        """Called after reading the signs of life first, then the resource; consent comes last. Whoever creates a
        resource for a new owner has created that owner before, which consent would see, so a slow read does no
        harm."""
        until = min(fresh_until(evidence_age.now()), started + FRESH_SIGNS.total_seconds())
        await clear_until(attempt.batch, attempt.job, until)
        self._consents.check(attempt.job, attempt.claim, attempt.judge)

    async def _remove_host(self, attempt: AzureAttempt, host: AzureKind) -> Verdict:
        """Deletes what the target is attached to, if the claim is on that, too, and it appeared when its own turn was
        over."""
        started, back = evidence_age.now(), attempt.progress._replace(host="")
        step = attempt.judge.host_step(attempt.claim, self._kind, attempt.job)
        if step is None or step.delay is None:
            raise ValueError(f"this job is in lane {attempt.batch.lane}, but deletes no {host.noun}")
        await attempt.judge.check_alive(attempt.claim, host, attempt.job)
        found = await attempt.calls.read(host, step.name)
        if found is not None and (left := await self._left_with_host(attempt, host, step.name)) is not None:
            return left
        objection = self._evaluate(attempt, host, found, attempt.progress.host)
        if isinstance(objection, Gone) or found is None:
            lane = attempt.where.lane(self._kind.removing)
            return Pending(timedelta(0), f"its {host.noun} is gone", lane=lane, resume=str(back))
        if objection is not None or found.going:
            return objection or Blocked(f"{host.title} {found.name}, which is being deleted")
        await self._clear(attempt, started)
        accepted = await attempt.calls.delete(host, step.name)
        text = f"the deletion of its {host.noun} was accepted"
        return self._read_later(attempt, back, text, accepted.after or timedelta(0))

    def _after_delete(self, attempt: AzureAttempt, accepted: Accepted, progress: AzureRemovalProgress) -> Verdict:
        progress = progress._replace(deletes=progress.deletes + 1, looks=0)
        if accepted.gone:
            # Only a read proves absence. If reads contradict this again and again, deletes are repeated less often.
            return self._read_later(attempt, progress, "said to be gone", timedelta(0))
        return self._read_later(attempt, progress, "deletion accepted", accepted.after)

    async def _check_host(self, attempt: AzureAttempt, host: AzureKind) -> Verdict | None:
        """Reads what the target may be attached to: it would be deleted with that."""
        step = attempt.judge.host_step(attempt.claim, self._kind, attempt.job)
        found = await attempt.calls.read(host, step.name) if step is not None else None
        if step is None or found is None:
            return None
        if (left := await self._left_with_host(attempt, host, step.name)) is not None:
            return left
        text = f"{host.title} {found.name} ({found.state}), which it belongs to"
        claimed = self._evaluate(attempt, host, found, "") is None and not found.going
        if step.delay is None or not claimed:
            return Blocked(text)
        # Launched while its owner was deleted: it gets the usual delay, in which signs of life may appear.
        after, lane = str(attempt.progress._replace(host=found.guid)), attempt.where.lane(host.removing)
        return Pending(step.delay, f"{text}, goes first", lane=lane, resume=after)

    async def _left_with_host(self, attempt: AzureAttempt, host: AzureKind, name: str) -> Left | None:
        return await attempt.judge.left_with(attempt.claim, attempt.job, attempt.where.id(host.type, name))

    async def _check_not_in_use(self, attempt: AzureAttempt, found: AzureResource) -> Verdict | None:
        if found.going:
            progress = attempt.progress._replace(guid=found.guid, looks=attempt.progress.looks + 1)
            return self._read_later(attempt, progress, "it is being deleted")
        if not found.used_by:
            return None
        return await attempt.judge.left_with(attempt.claim, attempt.job, found.used_by) or Blocked(found.used_by)


class _AzureBatchAttempts:
    """Runs the jobs of one batch, and records which were cleared."""

    def __init__(self, removal: AzureRemoval, tokens: BatchTokens) -> None:
        self.kind = removal.kind
        self.cleared = set[str]()
        self._removal, self._tokens = removal, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        cleared = ClearanceTracker(batch)
        try:
            return await self._removal.attempt_job(job, cleared, self._tokens)
        finally:
            if cleared.once:
                self.cleared.add(job.id)
