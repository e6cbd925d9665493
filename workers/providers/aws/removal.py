"""Handler that deletes resources of one kind: reads a batch, checks ownership, deletes, and proves absence later. Every
attempt begins with a read, so that a crash between a call and its record only repeats harmless work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from service.contract import Blocked, Draw, Job, Left, Refused, Verdict
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.batch_tokens import BatchTokens, ClearanceTracker
from workers.handlers.evidence_age import Outdated, retry_outdated
from workers.handlers.protocol import Batch, NotCleared
from workers.providers.aws.batch_reader import (
    BatchReader,
    Prepared,
    PreparedBatch,
    RemovalContext,
    check_later,
    verdict_for,
)
from workers.providers.aws.claims import ClaimRegistry, JudgedClaim, NoLongerWanted
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, EarlyVerdict


class AwsRemoval:
    """Handler of one kind."""

    def __init__(self, kind: AwsKind, context: RemovalContext) -> None:
        self.kind, self._kind, self._context = kind.name, kind, context
        self._reader = BatchReader(kind, context)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._context.limits.of_lane(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        jobs = len(batch.jobs)
        tokens = BatchTokens(batch, self.draws(batch.lane) or (), jobs)
        try:
            prepared = await self._reader.prepare(batch, tokens)
            async for job, verdict in BatchAdapter(_BatchAttempts(self, prepared, tokens)).attempt(batch):
                jobs -= 1
                yield job, verdict
        except asyncio.CancelledError:
            # The runtime returns jobs without a verdict, together with the tokens reserved for them.
            for _ in range(jobs):
                tokens.handed_back()
            raise
        finally:
            tokens.give_back()

    def cleared(self, batch: Batch, claim: JudgedClaim | None) -> ClearanceTracker:
        """A batch of one job that gives consent only while the deletion is still wanted."""
        return ClearanceTracker(_ConsentedBatch(batch, self._context.claims, claim))

    def should_recheck(self, job: Job, prepared: Prepared) -> bool:
        return self._context.rechecks.is_due(job, prepared)

    async def run(self, attempt: AwsAttempt) -> Verdict:
        operation = attempt.batch.lane.rpartition("/")[2]
        step = self._kind.steps.get(operation)
        if step is not None:
            return await step.run(attempt)
        if operation != self._kind.delete_operation:
            return attempt.move_to(self._kind.delete_operation, "nothing is done to it in this lane")
        against = await self._kind.precheck(attempt) if self._kind.precheck is not None else None
        return against or await self._delete(attempt)

    async def _delete(self, attempt: AwsAttempt) -> Verdict:
        kind = self._kind
        born = kind.incarnation(attempt.resource) if kind.incarnation is not None else ""
        await attempt.clear()
        try:
            await kind.delete(attempt.client, attempt.resource)
        except AwsError as error:
            if error.what == "gone" or error.code in kind.gone_codes:
                # Only a read proves absence.
                return check_later(attempt, kind, f"said to be gone: {error.code}", born)
            depends = error.what == "depends" or error.code in kind.dependency_codes
            if depends and kind.on_dependency is not None:
                return await kind.on_dependency(attempt, error)
            if depends:
                return Blocked(str(error), unseen=True)
            if error.what == "protected" and kind.on_protected is not None:
                return await kind.on_protected(attempt, error)
            raise
        return check_later(attempt, kind, "deleted", born)


class _ConsentedBatch:
    """A batch of one job, whose consent must be that of the collector that judges the claim, and of an owner that still
    wants the deletion."""

    def __init__(self, batch: Batch, claims: ClaimRegistry, claim: JudgedClaim | None) -> None:
        self.lane, self.jobs, self.report_quota, self.unused = batch.lane, batch.jobs, batch.report_quota, batch.unused
        self._batch, self._claims, self._claim = batch, claims, claim

    async def clear(self, *jobs: Job) -> None:
        """Also raises NoLongerWanted, and EarlyVerdict if another collector consented."""
        await self._batch.clear(*jobs)
        if self._claim is None:
            # Without a claim there is a verdict already, and no call.
            return
        for job in jobs:
            if (fault := self._claims.consent_fault(job.deletion, self._claim.claim)) is not None:
                raise EarlyVerdict(fault)
            self._claim.judge.require_wanted(job, self._claim.claim)


class _BatchAttempts:
    """Attempts at the jobs of one batch, run concurrently on the reads made for all of them."""

    def __init__(self, removal: AwsRemoval, prepared: PreparedBatch, tokens: BatchTokens) -> None:
        self.kind = removal.kind
        self._removal, self._prepared, self._tokens = removal, prepared, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        results, claims = self._prepared
        prepared = await self._attempt(job, results[job.id], self._removal.cleared(batch, claims.get(job.id)))
        if isinstance(prepared, Exception):
            raise prepared
        return prepared

    async def _attempt(self, job: Job, prepared: Prepared, batch: ClearanceTracker) -> Verdict | Exception:
        try:
            if self._removal.should_recheck(job, prepared):
                await batch.clear(job)
            if not isinstance(prepared, AwsAttempt):
                return prepared
            # Reads for a large batch may be stale by now: then this job's are repeated.
            attempt = await replace(prepared, batch=batch).refreshed()
            judge, found = attempt.judge, attempt.resource
            if judge.older(attempt.claim, found) and (why := judge.older(await attempt.live_claim(), found)):
                # By the live object: it may have adopted the resource since the plan.
                return Refused(why)
            return await self._removal.run(attempt)
        except EarlyVerdict as early:
            return early.verdict
        except Outdated as outdated:
            return retry_outdated(outdated)
        except NoLongerWanted as unwanted:
            return Left(str(unwanted))
        except NotCleared:
            if not batch.once:
                self._tokens.handed_back()
            raise
        except (AwsError, NoAccess) as error:
            return verdict_for(error)
