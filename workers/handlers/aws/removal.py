"""Handler that deletes resources of one kind: reads a batch, checks ownership, deletes, and proves absence later. Every
attempt begins with a read, so that a crash between a call and its record only repeats harmless work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from service.contract import Blocked, Draw, Job, Left, Refused, Verdict
from service.settings.aws import AwsSettings
from workers.handlers.aws.batch_reader import BatchReader, Prepared, check_later, verdict_for
from workers.handlers.aws.capa.latest_objects import LatestObjects, NoLongerWanted
from workers.handlers.aws.capa.ownership import age_objection
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.limits import kind_lane_draws
from workers.handlers.aws.model import AwsAttempt, AwsClients, AwsKind, EarlyVerdict
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.batch_tokens import BatchTokens, ClearanceTracker
from workers.handlers.evidence_age import Outdated, retry_outdated
from workers.handlers.protocol import Batch, NotCleared


class AwsRemoval:
    """Handler of one kind. `latest_objects` holds what the collector of this process last read of the objects."""

    def __init__(
        self, kind: AwsKind, clients: AwsClients, settings: AwsSettings, latest_objects: LatestObjects | None = None
    ) -> None:
        self.kind, self._latest_objects = kind.name, latest_objects or LatestObjects()
        self._kind, self._reader = kind, BatchReader(kind, clients, settings, self._latest_objects)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return kind_lane_draws(lane)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        jobs = len(batch.jobs)
        tokens = BatchTokens(batch, kind_lane_draws(batch.lane) or (), jobs)
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

    def cleared(self, batch: Batch) -> ClearanceTracker:
        """A batch that gives consent only while the deletion is still wanted."""
        return ClearanceTracker(self._latest_objects.checked_batch(batch, self._kind))

    def should_recheck(self, job: Job, prepared: Prepared) -> bool:
        return self._latest_objects.should_recheck(job, prepared)

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


class _BatchAttempts:
    """Attempts at the jobs of one batch, run concurrently on the reads made for all of them."""

    def __init__(self, removal: AwsRemoval, prepared: dict[str, Prepared], tokens: BatchTokens) -> None:
        self.kind = removal.kind
        self._removal, self._prepared, self._tokens = removal, prepared, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        prepared = await self._attempt(job, self._prepared[job.id], self._removal.cleared(batch))
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
            if age_objection(attempt.resource, attempt.owner, attempt.settings) and (
                why := age_objection(attempt.resource, await attempt.live_owner(), attempt.settings)
            ):
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
