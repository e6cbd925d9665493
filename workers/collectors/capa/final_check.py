"""Final check of a deletion: a new list, read after the settle time, must be empty before the object is released.
Resources that are left, or were created again, are removed by the same job in the lanes of their kinds."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
import structlog

from service.contract import Blocked, Draw, Gone, Job, Pending, Refused, Throttled, Verdict
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.sources.capa import CAPA, AwsSettings, Task
from workers.collectors.capa.capa_object import OPT_OUT_HINT
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.latest_objects import LatestObjects
from workers.collectors.capa.leftovers import LeftoverLanes, awaiting_list, leftovers_from, leftovers_of
from workers.collectors.capa.messages import (
    describe_ambiguous,
    describe_error,
    describe_unreadable,
    how_to_name_vpc,
    resource_names,
)
from workers.collectors.capa.preconditions import has_vpc
from workers.collectors.capa.resource_finder import FoundResources, OwnedResource, ResourceFinder, StillListing
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.lane_meter import LaneMeter
from workers.handlers.protocol import Batch, Handler
from workers.providers.aws.claims import ClaimRegistry, JudgedClaim
from workers.providers.aws.client.metered_client import MeteredClient
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import PROVIDER, AwsClients

log = structlog.get_logger(__name__)

FINAL_CHECK: Final = "aws.settled"
OPERATION: Final = "tag.GetResources"
RETRY_SOON: Final = timedelta(seconds=2)
"""When a list is retried after the budget was exhausted."""

LIST_CHECK_INTERVAL: Final = timedelta(seconds=5)
"""When a list that continues in the background is checked again."""


class FinalCheckData(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's data for the job."""

    claim: CapaClaim
    tasks: tuple[Task, ...]


class _StoredData(msgspec.Struct, frozen=True, kw_only=True):
    """The same as it is read: the registry decodes the claim, and checks it as it does for every other job."""

    claim: msgspec.Raw
    tasks: tuple[Task, ...]


_data: Final = msgspec.json.Decoder(_StoredData)


def lane_of(claim: CapaClaim) -> str:
    return f"{claim.place}/{OPERATION}"


class FinalCheck:
    """`removals` are the handlers of all kinds, by name; `limits` is what calls draw on."""

    kind = FINAL_CHECK

    def __init__(
        self,
        clients: AwsClients,
        finder: ResourceFinder,
        removals: Mapping[str, Handler],
        settings: AwsSettings,
        latest_objects: LatestObjects,
        memory: KeptRecords,
        limits: AwsLimits,
        claims: ClaimRegistry,
    ) -> None:
        self._clients, self._finder, self._removals = clients, finder, dict(removals)
        self._settings, self._latest_objects, self._memory, self._limits = settings, latest_objects, memory, limits
        self._claims = claims

    def draws(self, lane: str) -> Sequence[Draw] | None:
        """Only its own lane; the lanes of the kinds are declared by their handlers."""
        own = lane.startswith(f"{PROVIDER}/") and lane.endswith(f"/{OPERATION}")
        return self._limits.of_reads(lane) if own else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        if batch.lane.endswith(f"/{OPERATION}"):
            async for job, verdict in BatchAdapter(self).attempt(batch):
                yield job, verdict
            return
        groups: dict[str, dict[str, tuple[Job, CapaClaim]]] = {}
        for job in batch.jobs:
            leftovers, claim = leftovers_of(job.resume), self._claim_of(job, batch.lane)
            if not isinstance(claim, CapaClaim):
                yield job, claim
            elif leftovers.kind in self._removals:
                groups.setdefault(leftovers.kind, {})[job.id] = job, claim
            else:
                yield job, self._lanes(claim).list_again(leftovers, "it is listed again")
        for kind, mine in groups.items():
            borrowed = _RemovalBatch(batch, [_removal_job(job, claim) for job, claim in mine.values()])
            async for other, verdict in self._removals[kind].attempt(borrowed):
                job, claim = mine[other.id]
                yield job, self._lanes(claim).after_removal(leftovers_of(job.resume), verdict, job.record.verdict)

    def _lanes(self, claim: CapaClaim) -> LeftoverLanes:
        return LeftoverLanes(claim.place, lane_of(claim), self._settings.check_after)

    def _claim_of(self, job: Job, lane: str) -> CapaClaim | Refused | Exception:
        try:
            found = self._claims.decode(_data.decode(job.data).claim, lane.rpartition("/")[0])
        except msgspec.DecodeError as error:
            return error
        if not isinstance(found, JudgedClaim):
            return found
        if not isinstance(found.claim, CapaClaim):
            return Refused(f"its claim is of collector {found.claim.collector}, and this is the final check of {CAPA}")
        return found.claim

    # ---- the list

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        planned = self._claim_of(job, batch.lane)
        if not isinstance(planned, CapaClaim):
            if isinstance(planned, Exception):
                raise planned
            return planned
        claim, tasks = await self._latest_objects.confirm(batch, job, planned)
        name = self._finder.name(leftovers_of(job.resume).asked)
        patient = partial(self._clients.client, claim.scope, account=claim.account, patient=True)
        try:
            reserved = await self._clients.client(claim.scope, account=claim.account)
            client = MeteredClient(reserved, batch.meter, patient, self._limits)
            if claim.vpc != planned.vpc and not await has_vpc(client, claim.vpc):
                return Refused(
                    f"VPC {claim.vpc}, which its object names since this was planned, is not in account "
                    f"{client.account}, region {claim.scope.region}; {OPT_OUT_HINT}"
                )
            finds = await self._finder.find(claim, tasks, client, name=name)
        except StillListing as going:
            return Pending(LIST_CHECK_INTERVAL, str(going), resume=awaiting_list(job.resume, name).text, still=True)
        except NoAccess as error:
            return Blocked(str(error), person=True) if error.again else Refused(str(error))
        except AwsError as error:
            if error.what == "throttled" and batch.meter.throttled:
                return Throttled(error.after, str(error))
            if error.what == "throttled":
                return Pending(error.after or RETRY_SOON, str(error), resume=job.resume, still=True)
            if error.what == "denied":
                return Refused(describe_error(error))
            raise
        return self._judge(job, claim, without_abandoned(finds, await self._memory.abandoned(job.deletion)))

    def _judge(self, job: Job, claim: CapaClaim, finds: FoundResources) -> Verdict:
        """Only a complete and empty list releases the object."""
        if finds.owned:
            leftovers = leftovers_from(finds.owned, leftovers_of(job.resume))
            log.warning(
                "resources are there again, or still", deletion=job.deletion, cluster=claim.name,
                count=len(finds.owned), first=leftovers.current,
            )  # fmt: skip
            return self._lanes(claim).remove(leftovers, f"there again, or still: {resource_names(finds.owned)}")
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

    @property
    def meter(self) -> LaneMeter:
        return self._batch.meter


def _removal_job(job: Job, claim: CapaClaim) -> Job:
    leftovers = leftovers_of(job.resume)
    claim = msgspec.structs.replace(claim, by=leftovers.by, vpc=claim.vpc or leftovers.vpc)
    record = msgspec.structs.replace(
        job.record,
        kind=leftovers.kind,
        target=leftovers.id,
        data=msgspec.json.encode(claim).decode(),
        resume=leftovers.resume,
    )
    return Job(job.id, job.fence, record)
