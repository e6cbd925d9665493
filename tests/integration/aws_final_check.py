"""Final check of a deletion driven by a test: its job moves from lane to lane by its verdicts. No queue is involved,
and delays take no time."""

from collections.abc import Sequence
from typing import Any

import msgspec

from service.contract import Job, JobRecord, Pending, Target, Verdict
from service.contract.version import VERSION
from standins.aws.builder import Vpc
from tests.integration.capa_states import record_consents, record_objects
from tests.integration.capi_fixture import CapaSide, CapiFixture
from tests.recording_batch import RecordingBatch
from workers.collectors.capa.final_check import FINAL_CHECK, OPERATION
from workers.collectors.capa.latest_objects import ObjectState
from workers.providers.aws.kinds import KINDS
from workers.providers.aws.limits import AwsLimits

GOES_ON = "listing goes on"
LIMITS = AwsLimits(KINDS)


class Taken(RecordingBatch):
    """A batch that a test controls."""

    def __init__(self, lane: str, *jobs: Job) -> None:
        draws = LIMITS.of_reads(lane) if lane.endswith(f"/{OPERATION}") else LIMITS.of_lane(lane)
        super().__init__(lane, jobs, draws or ())


def job_of(target: Target, **changed: Any) -> Job:
    record = JobRecord(v=VERSION, stage=0, lane=target.lane, kind=target.kind, target=target.id, data=target.data)
    return Job("deletion#1.1", 7, msgspec.structs.replace(record, **changed))


async def attempted(
    side: CapaSide, batch: Taken, *planned: Job, state: ObjectState | None = None
) -> Verdict | Exception:
    """The verdict of one attempt, which may be that a list continues. Its object is as it was planned, by the jobs
    `planned` if any, unless its `state` is given."""
    record_objects(side.collector.latest_objects, planned or batch.jobs)
    if state is not None:
        for job in batch.jobs:
            side.collector.latest_objects.record(job.deletion, state)
    record_consents(side.provider.claims, planned or batch.jobs)
    handler = next(handler for handler in side.handlers if handler.kind == FINAL_CHECK)
    ((_, verdict),) = [pair async for pair in handler.attempt(batch)]
    return verdict


async def listed(side: CapaSide, batch: Taken, state: ObjectState | None = None) -> Verdict | Exception:
    """The verdict once the list is complete, in as many attempts as that takes."""
    while isinstance(verdict := await attempted(side, batch, state=state), Pending) and GOES_ON in verdict.detail:
        (job,) = batch.jobs
        record = msgspec.structs.replace(job.record, resume=verdict.resume, verdict="check")
        batch.jobs = (Job(job.id, job.fence, record),)
    return verdict


async def last_of(clusters: CapiFixture, side: CapaSide, vpc: Vpc) -> Target:
    """The target of the final check in the plan of a cluster that owns nothing."""
    targets: Sequence[Target] = await clusters.planned(clusters.delete_marked("prod", vpc), side)
    assert [target.kind for target in targets] == [FINAL_CHECK]
    return targets[0]


class Walk:
    """The job of the final check, tried again by its verdicts; delays take no time."""

    def __init__(self, side: CapaSide, target: Target, resume: str = "") -> None:
        self._side, self._target, self._job = side, target, job_of(target, resume=resume)

    async def on(self) -> Verdict | Exception:
        verdict = await attempted(self._side, Taken(self._job.record.lane, self._job))
        if isinstance(verdict, Pending):
            self._job = job_of(self._target, resume=verdict.resume, verdict="check")
        return verdict

    async def until(self, *kinds: type) -> Verdict | Exception:
        for _ in range(60):
            verdict = await self.on()
            if isinstance(verdict, (*kinds, Exception)):
                return verdict
        raise AssertionError(f"none of {kinds} in 60 attempts")
