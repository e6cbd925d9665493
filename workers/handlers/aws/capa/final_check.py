"""Final check of a deletion: a new list, read after the settle time, must be empty before the object is released.
Resources that are left, or were created again, are removed by the same job in the lanes of their kinds."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from service.contract import Blocked, Draw, Gone, Job, Pause, Pending, Refused, Throttled, Verdict
from service.contract.aws import Task
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.settings.aws import AwsSettings
from workers.handlers.aws.capa.capa_object import OPT_OUT_HINT
from workers.handlers.aws.capa.latest_objects import LatestObjects
from workers.handlers.aws.capa.leftovers import LeftoverLanes, awaiting_list, leftovers_from, leftovers_of
from workers.handlers.aws.capa.messages import (
    describe_ambiguous,
    describe_error,
    describe_unreadable,
    how_to_name_vpc,
    resource_names,
)
from workers.handlers.aws.capa.preconditions import has_vpc
from workers.handlers.aws.capa.resource_finder import FoundResources, OwnedResource, ResourceFinder, StillListing
from workers.handlers.aws.capa.tagging_api import PrepaidCall, PrepaidCallThrottled
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.limits import lane_draws
from workers.handlers.aws.model import PROVIDER, AwsClients, CapaCluster
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Batch, Handler

log = structlog.get_logger(__name__)

FINAL_CHECK: Final = "aws.settled"
OPERATION: Final = "tag.GetResources"
RETRY_SOON: Final = timedelta(seconds=2)
"""When a list is retried after the budget was exhausted."""

LIST_CHECK_INTERVAL: Final = timedelta(seconds=5)
"""When a list that continues in the background is checked again."""


class FinalCheckData(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's data for the job."""

    owner: CapaCluster
    tasks: tuple[Task, ...]


_data: Final = msgspec.json.Decoder(FinalCheckData)


def lane_of(owner: CapaCluster) -> str:
    return f"{owner.place}/{OPERATION}"


class FinalCheck:
    """`removals` are the handlers of all kinds, by name."""

    kind = FINAL_CHECK

    def __init__(
        self,
        clients: AwsClients,
        finder: ResourceFinder,
        removals: Mapping[str, Handler],
        settings: AwsSettings,
        latest_objects: LatestObjects,
        memory: KeptRecords,
    ) -> None:
        self._clients, self._finder, self._removals = clients, finder, dict(removals)
        self._settings, self._latest_objects, self._memory = settings, latest_objects, memory

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """Only its own lane; the lanes of the kinds are declared by their handlers."""
        own = lane.startswith(f"{PROVIDER}/") and lane.endswith(f"/{OPERATION}")
        return lane_draws(lane) if own else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        if batch.lane.endswith(f"/{OPERATION}"):
            async for job, verdict in BatchAdapter(self).attempt(batch):
                yield job, verdict
            return
        groups: dict[str, list[Job]] = {}
        for job in batch.jobs:
            leftovers = leftovers_of(job.resume)
            if leftovers.kind in self._removals:
                groups.setdefault(leftovers.kind, []).append(job)
            else:
                yield job, self._lanes(_owner_of(job)).list_again(leftovers, "it is listed again")
        for kind, jobs in groups.items():
            borrowed = _RemovalBatch(batch, [_removal_job(job) for job in jobs])
            mine = {job.id: job for job in jobs}
            async for other, verdict in self._removals[kind].attempt(borrowed):
                job = mine[other.id]
                lanes, leftovers = self._lanes(_owner_of(job)), leftovers_of(job.resume)
                yield job, lanes.after_removal(leftovers, verdict, job.record.verdict)

    def _lanes(self, owner: CapaCluster) -> LeftoverLanes:
        return LeftoverLanes(owner.place, lane_of(owner), self._settings.check_after)

    # ---- the list

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        settling = _data.decode(job.data)
        owner, tasks = await self._latest_objects.confirm(batch, job, settling.owner, settling.tasks)
        prepaid, name = None, self._finder.name(leftovers_of(job.resume).asked)
        try:
            prepaid = PrepaidCall(await self._clients.client(owner.scope, account=owner.account))
            client = await self._clients.client(owner.scope, account=owner.account, patient=True)
            if owner.vpc != settling.owner.vpc and not await has_vpc(client, owner.vpc):
                return Refused(
                    f"VPC {owner.vpc}, which its object names since this was planned, is not in account "
                    f"{client.account}, region {owner.scope.region}; {OPT_OUT_HINT}"
                )
            finds = await self._finder.find(owner, tasks, client, prepaid, name=name)
        except StillListing as going:
            return Pending(LIST_CHECK_INTERVAL, str(going), resume=awaiting_list(job.resume, name).text, still=True)
        except PrepaidCallThrottled as throttled:
            limit = lane_draws(batch.lane) or ()
            if limit:
                batch.report_quota(Pause(limit[0].limit.name, throttled.error.after))
            return Throttled(throttled.error.after, str(throttled.error))
        except NoAccess as error:
            return Blocked(str(error), person=True) if error.again else Refused(str(error))
        except AwsError as error:
            if error.what == "throttled":
                return Pending(error.after or RETRY_SOON, str(error), resume=job.resume, still=True)
            if error.what == "denied":
                return Refused(describe_error(error))
            raise
        finally:
            if prepaid is None or prepaid.discard():
                for draw in lane_draws(batch.lane) or ():
                    batch.unused(draw.limit.name, draw.cost)
        return self._judge(job, owner, without_abandoned(finds, await self._memory.abandoned(job.deletion)))

    def _judge(self, job: Job, owner: CapaCluster, finds: FoundResources) -> Verdict:
        """Only a complete and empty list releases the object."""
        if finds.owned:
            leftovers = leftovers_from(finds.owned, leftovers_of(job.resume))
            log.warning(
                "resources are there again, or still", deletion=job.deletion, cluster=owner.name,
                count=len(finds.owned), first=leftovers.current,
            )  # fmt: skip
            return self._lanes(owner).remove(leftovers, f"there again, or still: {resource_names(finds.owned)}")
        if finds.unreadable:
            return Refused(f"whether everything is gone can't be told: {describe_unreadable(finds)}")
        if finds.ambiguous:
            subject = self._latest_objects.object_of(job.deletion)
            remedy = OPT_OUT_HINT if subject is None else how_to_name_vpc(finds, subject)
            return Refused(f"{describe_ambiguous(finds, 'its object')}; {remedy}")
        if job.resume and not leftovers_of(job.resume).first:
            return Pending(self._settings.settle, "nothing is left; looked at once more when it has settled")
        return Gone("a fresh list is empty")


def without_abandoned(finds: FoundResources, abandoned: Abandoned) -> FoundResources:
    """Abandoned resources are neither waited for nor removed."""
    if abandoned == NOTHING_ABANDONED:
        return finds

    def rest(owned: Sequence[OwnedResource]) -> list[OwnedResource]:
        return [one for one in owned if not abandoned.covers(one.kind.name, one.resource.id)]

    return msgspec.structs.replace(finds, owned=rest(finds.owned), ambiguous=rest(finds.ambiguous))


# ---- removal of what is left


class _RemovalBatch:
    """A batch whose jobs stand for the resources to remove: same ids, same leases."""

    def __init__(self, batch: Batch, jobs: Sequence[Job]) -> None:
        self._batch, self.jobs, self.lane = batch, jobs, batch.lane
        self.clear, self.report_quota, self.unused = batch.clear, batch.report_quota, batch.unused


def _removal_job(job: Job) -> Job:
    leftovers, owner = leftovers_of(job.resume), _owner_of(job)
    owner = msgspec.structs.replace(owner, by=leftovers.by, vpc=owner.vpc or leftovers.vpc)
    record = msgspec.structs.replace(
        job.record,
        kind=leftovers.kind,
        target=leftovers.id,
        data=msgspec.json.encode(owner).decode(),
        resume=leftovers.resume,
    )
    return Job(job.id, job.fence, record)


def _owner_of(job: Job) -> CapaCluster:
    return _data.decode(job.data).owner
