"""Removal of what a resource on Azure is attached to and would be deleted with, such as the machine of an interface. It
is deleted first, by the resource's own job, in the same order of steps as any resource (`workers/removal.py`): the job
stands for the host in the lane of the host's kind, and goes on with its resource afterwards."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, cast

import msgspec

from service.contract import Draw, Gone, Job, Pending, Verdict
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Batch, Handler
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.claims import ClaimJudges, Consents
from workers.providers.azure.kind_calls import AzureAttempt, AzureKindCalls, Calling, HostProgress
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.limits import LaneLimits
from workers.removal import Accepted, ClaimedJob, Evidence, Removal, RemovalProgress


def azure_removal(
    kind: AzureKind,
    calling: Calling,
    limits: LaneLimits,
    judges: ClaimJudges,
    consents: Consents,
    kept_records: KeptRecords,
) -> Handler:
    """Handler of one kind."""
    removal = Removal(AzureKindCalls(kind, calling, limits, judges, consents), kept_records)
    if kind.host is None:
        return removal
    host_calls = HostCalls(kind, kind.host, calling, limits, judges, consents)
    return RemovalWithHost(kind, kind.host, removal, Removal(host_calls, kept_records))


class HostCalls(AzureKindCalls):
    """Calls for the hosts of `attached` resources, whose jobs are seen as jobs of the hosts."""

    def __init__(
        self,
        attached: AzureKind,
        host: AzureKind,
        calling: Calling,
        limits: LaneLimits,
        judges: ClaimJudges,
        consents: Consents,
    ) -> None:
        super().__init__(host, calling, limits, judges, consents)
        self._attached = attached
        # After the delete the job looks at its own resource again.
        self.check_operation = attached.reading

    def claimed(self, job: Job, lane: str) -> ClaimedJob | Verdict | Exception:
        found = super().claimed(job, lane)
        if not isinstance(found, ClaimedJob):
            return found
        step = found.judge.host_step(found.claim, self._attached, job)
        if step is None or step.delay is None:
            return ValueError(f"this job is in lane {lane}, but deletes no host")
        known = HostProgress.read(RemovalProgress.read(job.resume).state)
        record = msgspec.structs.replace(
            job.record, kind=self.kind, target=step.name, incarnation="",
            resume=str(RemovalProgress(known.guid, known.deletes)),
        )  # fmt: skip
        return found._replace(job=Job(job.id, job.fence, record))

    def expected(self, claimed: ClaimedJob) -> str:
        """What a sweep has judged is the attached resource."""
        del claimed
        return ""

    async def read(self, operation: str, client: AzureCalls, claimed: Sequence[ClaimedJob]) -> Evidence:
        evidence = await super().read(operation, client, claimed)
        (one,) = claimed
        if not evidence.found:
            return evidence
        left = await one.judge.left_with(one.claim, one.job, one.claim.where.id(self._kind.type, one.job.target))
        # What was read is as old as it was: this took its time, too.
        return evidence if left is None else evidence._replace(verdicts={one.job.id: left})

    async def delete(self, attempt: AzureAttempt) -> Accepted:
        accepted = await super().delete(attempt)
        return accepted._replace(detail=f"the deletion of its {self._kind.noun} was accepted")


class RemovalWithHost:
    """Handler of a kind with a host. What becomes of a host is the next step of the job that stands for it."""

    def __init__(self, kind: AzureKind, host: AzureKind, removal: Removal[Any], of_hosts: Removal[Any]) -> None:
        self.kind, self._host, self._delete_operation = kind.name, host, kind.removing
        self._removal, self._of_hosts = removal, of_hosts

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        if batch.lane.rpartition("/")[2] == self._host.removing:
            return self._remove_hosts(batch)
        return self._removal.attempt(batch)

    async def _remove_hosts(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        place = batch.lane.rpartition("/")[0]
        attempts = cast("AsyncGenerator[tuple[Job, Verdict | Exception]]", self._of_hosts.attempt(batch))
        async with aclosing(attempts):
            async for job, verdict in attempts:
                yield job, self._next_step(job, verdict, f"{place}/{self._delete_operation}")

    def _next_step(self, job: Job, verdict: Verdict | Exception, delete_lane: str) -> Verdict | Exception:
        progress = RemovalProgress.read(job.resume)
        match verdict:
            case Gone():
                resume = str(progress._replace(state=""))
                return Pending(timedelta(0), f"its {self._host.noun} is gone", lane=delete_lane, resume=resume)
            case Pending():
                host = RemovalProgress.read(verdict.resume)
                state = str(HostProgress(host.incarnation, host.deletes))
                return msgspec.structs.replace(verdict, resume=str(progress._replace(state=state)))
            case _:
                return verdict
