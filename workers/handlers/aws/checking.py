"""The last look of a deletion: a fresh list, made after the settle time, must come back empty before the object goes.
What was left or was made again is removed by the same job, which goes through the lanes of its kind and comes back."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from service.contract import Blocked, Draw, Gone, Job, Pause, Pending, Refused, Throttled, Verdict
from service.contract.aws import Task
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.settings.aws import AwsSettings
from workers.handlers.aws.errands import Way, awaiting, errand_of, sent_for
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import has_vpc
from workers.handlers.aws.finding import Claim, Finding, Finds, StillListing
from workers.handlers.aws.limits import draws_of_lane
from workers.handlers.aws.model import PROVIDER, Owner, Reach
from workers.handlers.aws.owners import LET_GO
from workers.handlers.aws.tagging import Paid, Refill
from workers.handlers.aws.wanting import Wanting
from workers.handlers.aws.words import named, to_name_vpc, told, unread, vague
from workers.handlers.memory import Memory
from workers.handlers.protocol import Batch, Handler
from workers.handlers.single import Single

log = structlog.get_logger(__name__)

SETTLED: Final = "aws.settled"
OPERATION: Final = "tag.GetResources"
SOON: Final = timedelta(seconds=2)
"""When a list is tried again for which the budgets had nothing left."""

LATER: Final = timedelta(seconds=5)
"""When it is looked whether a list that goes on has come to its end."""


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """What the job knows from its plan."""

    owner: Owner
    tasks: tuple[Task, ...]


_settling: Final = msgspec.json.Decoder(Settling)


def lane_of(owner: Owner) -> str:
    return f"{owner.place}/{OPERATION}"


class Settled:
    """`removals` are the handlers of all kinds."""

    kind = SETTLED

    def __init__(
        self,
        reach: Reach,
        finding: Finding,
        removals: Mapping[str, Handler],
        settings: AwsSettings,
        wanting: Wanting,
        memory: Memory,
    ) -> None:
        self._reach, self._finding, self._removals = reach, finding, dict(removals)
        self._settings, self._wanting, self._memory = settings, wanting, memory

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
            errand = errand_of(job.resume)
            if errand.kind in self._removals:
                groups.setdefault(errand.kind, []).append(job)
            else:
                yield job, self._way(_owner_of(job)).back(errand, "it is listed again")
        for kind, jobs in groups.items():
            borrowed = _Borrowed(batch, [_in_place_of(job) for job in jobs])
            mine = {job.id: job for job in jobs}
            async for other, verdict in self._removals[kind].attempt(borrowed):
                job = mine[other.id]
                way, errand = self._way(_owner_of(job)), errand_of(job.resume)
                yield job, way.carried(errand, verdict, job.record.verdict)

    def _way(self, owner: Owner) -> Way:
        return Way(owner.place, lane_of(owner), self._settings.check_after)

    # ---- the list

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        settling = _settling.decode(job.data)
        owner, tasks = await self._wanting.live(batch, job, settling.owner, settling.tasks)
        paid, name = None, self._finding.name(errand_of(job.resume).asked)
        try:
            paid = Paid(await self._reach.calls(owner.whose, account=owner.account))
            calls = await self._reach.calls(owner.whose, account=owner.account, patient=True)
            if owner.vpc != settling.owner.vpc and not await has_vpc(calls, owner.vpc):
                return Refused(
                    f"VPC {owner.vpc}, which its object names since this was planned, is not in account "
                    f"{calls.account}, region {owner.whose.region}; {LET_GO}"
                )
            finds = await self._finding.find(owner, tasks, calls, paid, name=name)
        except StillListing as going:
            return Pending(LATER, str(going), resume=awaiting(job.resume, name).text, still=True)
        except Refill as refill:
            limit = draws_of_lane(batch.lane) or ()
            if limit:
                batch.tell(Pause(limit[0].limit.name, refill.error.after))
            return Throttled(refill.error.after, str(refill.error))
        except NoAccess as error:
            return Blocked(str(error), person=True) if error.again else Refused(str(error))
        except AwsError as error:
            if error.what == "throttled":
                return Pending(error.after or SOON, str(error), resume=job.resume, still=True)
            if error.what == "denied":
                return Refused(told(error))
            raise
        finally:
            if paid is None or paid.lapses():
                for draw in draws_of_lane(batch.lane) or ():
                    batch.unused(draw.limit.name, draw.cost)
        return self._judge(job, owner, without(finds, await self._memory.abandoned(job.deletion)))

    def _judge(self, job: Job, owner: Owner, finds: Finds) -> Verdict:
        """Only a list that is whole and empty lets the object go."""
        if finds.claims:
            errand = sent_for(finds.claims, errand_of(job.resume))
            log.warning(
                "resources are there again, or still", deletion=job.deletion, cluster=owner.name,
                count=len(finds.claims), first=errand.what,
            )  # fmt: skip
            return self._way(owner).to(errand, f"there again, or still: {named(finds.claims)}")
        if finds.unread:
            return Refused(f"whether everything is gone can't be told: {unread(finds)}")
        if finds.vague:
            subject = self._wanting.subject(job.deletion)
            remedy = LET_GO if subject is None else to_name_vpc(finds, subject)
            return Refused(f"{vague(finds, 'its object')}; {remedy}")
        if job.resume and not errand_of(job.resume).first:
            return Pending(self._settings.settle, "nothing is left; looked at once more when it has settled")
        return Gone("a fresh list is empty")


def without(finds: Finds, abandoned: Abandoned) -> Finds:
    """What a person abandoned is neither waited for nor removed: it stays where it is."""
    if abandoned == NOTHING_ABANDONED:
        return finds

    def rest(claims: Sequence[Claim]) -> list[Claim]:
        return [one for one in claims if not abandoned.covers(one.kind.name, one.found.id)]

    return msgspec.structs.replace(finds, claims=rest(finds.claims), vague=rest(finds.vague))


# ---- errands


class _Borrowed:
    """A batch whose jobs are about what they were sent for: same ids, same leases."""

    def __init__(self, batch: Batch, jobs: Sequence[Job]) -> None:
        self._batch, self.jobs, self.lane = batch, jobs, batch.lane
        self.clear, self.tell, self.unused = batch.clear, batch.tell, batch.unused


def _in_place_of(job: Job) -> Job:
    errand, owner = errand_of(job.resume), _owner_of(job)
    owner = msgspec.structs.replace(owner, by=errand.by, vpc=owner.vpc or errand.vpc)
    record = msgspec.structs.replace(
        job.record, kind=errand.kind, target=errand.id, data=msgspec.json.encode(owner).decode(), resume=errand.resume
    )
    return Job(job.id, job.fence, record)


def _owner_of(job: Job) -> Owner:
    return _settling.decode(job.data).owner
