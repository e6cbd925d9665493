"""The last look of a deletion: a fresh list, made after the settle time, must come back empty before the object goes.
What was left or was made again is removed by the same job, which goes through the lanes of its kind and comes back."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal

import msgspec
import structlog

from service.contract import Blocked, Draw, Gone, Job, Pause, Pending, Refused, Throttled, Verdict
from service.contract.aws import Task
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.finding import Claim, Finding, Finds
from workers.handlers.aws.limits import draws_of_lane
from workers.handlers.aws.model import PROVIDER, Owner, Reach
from workers.handlers.aws.tagging import Refill
from workers.handlers.aws.words import named, told, unread, vague
from workers.handlers.protocol import Batch, Handler
from workers.handlers.single import Single

log = structlog.get_logger(__name__)

SETTLED: Final = "aws.settled"
OPERATION: Final = "tag.GetResources"
SOON: Final = timedelta(seconds=2)
"""When a list is tried again for which the budgets had nothing left."""

BACK: Final = timedelta(milliseconds=500)
"""Between an errand and the next list: should the two ever see different things, they do not chase each other."""


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """What the job knows from its plan."""

    owner: Owner
    tasks: tuple[Task, ...]


class Errand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the job is about to remove, and by which tag it is the owner's; `resume` belongs to the kind's own steps.
    Without an id: it has just removed something, and the settle time begins anew once nothing is left."""

    kind: str = ""
    id: str = ""
    by: Literal["ccm", "lbc"] = "ccm"
    resume: str = ""


_settling: Final = msgspec.json.Decoder(Settling)
_errand: Final = msgspec.json.Decoder(Errand)


def lane_of(owner: Owner) -> str:
    return f"{owner.place}/{OPERATION}"


class Settled:
    """`removals` are the handlers of all kinds."""

    kind = SETTLED

    def __init__(self, reach: Reach, finding: Finding, removals: Mapping[str, Handler], settle: timedelta) -> None:
        self._reach, self._finding, self._removals, self._settle = reach, finding, dict(removals), settle

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """Lanes of other operations are those of the kinds, which say themselves what they draw on."""
        own = lane.startswith(f"{PROVIDER}/") and lane.endswith(f"/{OPERATION}")
        return draws_of_lane(lane) if own else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        if batch.lane.endswith(f"/{OPERATION}"):
            async for job, verdict in Single(self).attempt(batch):
                yield job, verdict
            return
        groups: dict[str, list[Job]] = {}
        for job in batch.jobs:
            errand = _errand_of(job)
            if errand.kind in self._removals:
                groups.setdefault(errand.kind, []).append(job)
            else:
                yield job, _listed_again(job)
        for kind, jobs in groups.items():
            borrowed = _Borrowed(batch, [_in_place_of(job) for job in jobs])
            mine = {job.id: job for job in jobs}
            async for other, verdict in self._removals[kind].attempt(borrowed):
                yield mine[other.id], _carried(mine[other.id], verdict)

    # ---- the list

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        settling = _settling.decode(job.data)
        owner = settling.owner
        try:
            paid = await self._reach.calls(owner.whose, account=owner.account)
            calls = await self._reach.calls(owner.whose, account=owner.account, paced=True)
            finds = await self._finding.find(owner, settling.tasks, calls, paid)
        except Refill as refill:
            limit = draws_of_lane(batch.lane) or ()
            if limit:
                batch.tell(Pause(limit[0].limit.name, refill.error.after))
            return Throttled(refill.error.after, str(refill.error))
        except NoAccess as error:
            return Blocked(str(error)) if error.again else Refused(str(error))
        except AwsError as error:
            if error.what == "throttled":
                return Pending(error.after or SOON, str(error), resume=job.resume)
            if error.what == "denied":
                return Refused(told(error))
            raise
        if not finds.asked:
            for draw in draws_of_lane(batch.lane) or ():
                batch.unused(draw.limit.name, draw.cost)
        return self._judge(job, owner, finds)

    def _judge(self, job: Job, owner: Owner, finds: Finds) -> Verdict:
        """Only a list that is whole and empty lets the object go."""
        if finds.claims:
            claim = min(finds.claims, key=_first)
            errand = Errand(kind=claim.kind.name, id=claim.found.id, by=claim.owner.by)
            log.warning(
                "resources are there again, or still", deletion=job.deletion, cluster=owner.name,
                count=len(finds.claims), first=f"{claim.kind.name} {claim.found.id}",
            )  # fmt: skip
            return Pending(
                timedelta(0), f"there again, or still: {named(finds.claims)}",
                lane=f"{owner.place}/{claim.kind.operation}", resume=_text(errand),
            )  # fmt: skip
        if finds.unread:
            return Refused(f"whether everything is gone can't be told: {unread(finds)}")
        if finds.vague:
            return Refused(vague(finds, "its object"))
        if job.resume:
            return Pending(self._settle, "nothing is left; looked at once more when it has settled")
        return Gone("a fresh list is empty")


def _first(claim: Claim) -> tuple[int, str, str]:
    return claim.kind.stage, claim.kind.name, claim.found.id


# ---- errands


class _Borrowed:
    """A batch whose jobs are about what they were sent for: same ids, same leases."""

    def __init__(self, batch: Batch, jobs: Sequence[Job]) -> None:
        self._batch, self.jobs, self.lane = batch, jobs, batch.lane
        self.clear, self.tell, self.unused = batch.clear, batch.tell, batch.unused


def _in_place_of(job: Job) -> Job:
    errand = _errand_of(job)
    owner = msgspec.structs.replace(_settling.decode(job.data).owner, by=errand.by)
    record = msgspec.structs.replace(
        job.record, kind=errand.kind, target=errand.id, data=msgspec.json.encode(owner).decode(), resume=errand.resume
    )
    return Job(job.id, job.fence, record)


def _carried(job: Job, verdict: Verdict | Exception) -> Verdict | Exception:
    """What a removal found, as it is for the job that ran the errand."""
    errand = _errand_of(job)
    what = f"{errand.kind} {errand.id}"
    match verdict:
        case Gone():
            return _listed_again(job, f"{what} is gone")
        case Pending(check_after, detail, lane, resume):
            further = msgspec.structs.replace(errand, resume=resume)
            return Pending(check_after, f"{what}: {detail}", lane=lane, resume=_text(further))
        case Blocked(by, until):
            return Blocked(f"{what}: {by}", until)
        case Refused() if job.record.verdict == "refused":
            # It may be nobody's errand any more: another's by now, say. The list tells.
            return _listed_again(job)
        case Refused(reason):
            return Refused(f"{what}: {reason}")
        case _:
            return verdict


def _errand_of(job: Job) -> Errand:
    try:
        return _errand.decode(job.resume) if job.resume else Errand()
    except msgspec.DecodeError:
        return Errand()


def _listed_again(job: Job, detail: str = "it is listed again") -> Pending:
    return Pending(BACK, detail, lane=lane_of(_settling.decode(job.data).owner), resume=_AGAIN)


def _text(errand: Errand) -> str:
    return msgspec.json.encode(errand).decode()


_AGAIN: Final = _text(Errand())
