"""Final check of a deletion: a new list, read after the settle time, must be empty before the object is released.
Resources that are left, or were created again, become late targets of the deletion, and another list follows."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
import structlog

from service.contract import Blocked, Draw, Found, Gone, Job, Pending, Refused, Throttled, Verdict
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.sources.capa import CAPA, AwsSettings, Task
from workers.collectors.capa.capa_object import OPT_OUT_HINT
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.latest_objects import LatestObjects
from workers.collectors.capa.messages import (
    describe_ambiguous,
    describe_error,
    describe_unreadable,
    how_to_name_vpc,
    resource_names,
)
from workers.collectors.capa.preconditions import has_vpc
from workers.collectors.capa.resource_finder import FoundResources, OwnedResource, ResourceFinder, StillListing
from workers.collectors.capa.targets import late_targets_of
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.kept_resources import KeptRecords
from workers.handlers.protocol import Batch
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

MAX_LIST_NAMES: Final = 8
"""Names of background lists that a job stores: it may run in any process, and none starts its list twice."""


class FinalCheckData(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's data for the job."""

    claim: CapaClaim
    tasks: tuple[Task, ...]


class _StoredData(msgspec.Struct, frozen=True, kw_only=True):
    """The same as it is read: the registry decodes the claim, and checks it as it does for every other job."""

    claim: msgspec.Raw
    tasks: tuple[Task, ...]


class CheckState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State in the job's `resume` between two lists."""

    # Background lists requested since the last one that was complete, by name.
    asked: tuple[str, ...] = ()
    # Nothing was found so far, so the settle time need not restart.
    first: bool = False

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_data: Final = msgspec.json.Decoder(_StoredData)
_state: Final = msgspec.json.Decoder(CheckState)


def state_of(resume: str) -> CheckState:
    """State that can't be decoded is that of a check which has found something: it waits once more."""
    try:
        return _state.decode(resume) if resume else CheckState(first=True)
    except msgspec.DecodeError:
        return CheckState()


def awaiting_list(resume: str, name: str) -> CheckState:
    """The state with the name of the list to return for."""
    before = state_of(resume)
    asked = (*(one for one in before.asked if one != name), name)[-MAX_LIST_NAMES:]
    return msgspec.structs.replace(before, asked=asked)


def lane_of(claim: CapaClaim) -> str:
    return f"{claim.place}/{OPERATION}"


class FinalCheck:
    """`limits` is what calls draw on."""

    kind = FINAL_CHECK

    def __init__(
        self,
        clients: AwsClients,
        finder: ResourceFinder,
        settings: AwsSettings,
        latest_objects: LatestObjects,
        memory: KeptRecords,
        limits: AwsLimits,
        claims: ClaimRegistry,
    ) -> None:
        self._clients, self._finder = clients, finder
        self._settings, self._latest_objects, self._memory, self._limits = settings, latest_objects, memory, limits
        self._claims = claims

    def draws(self, lane: str) -> Sequence[Draw] | None:
        own = lane.startswith(f"{PROVIDER}/") and lane.endswith(f"/{OPERATION}")
        return self._limits.of_reads(lane) if own else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        async for job, verdict in BatchAdapter(self).attempt(batch):
            yield job, verdict

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
        planned, meter = self._claim_of(job, batch.lane), batch.meter
        if not isinstance(planned, CapaClaim):
            if isinstance(planned, Exception):
                raise planned
            return planned
        claim, tasks = await self._latest_objects.confirm(batch, job, planned)
        name = self._finder.name(state_of(job.resume).asked)
        patient = partial(self._clients.client, claim.scope, account=claim.account, patient=True)
        try:
            reserved = await self._clients.client(claim.scope, account=claim.account)
            client = MeteredClient(reserved, meter, patient, self._limits)
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
            if error.what == "throttled" and meter.throttled:
                return Throttled(error.after, str(error))
            if error.what == "throttled":
                return Pending(error.after or RETRY_SOON, str(error), resume=job.resume, still=True)
            if error.what == "denied":
                return Refused(describe_error(error))
            raise
        return self._judge(job, planned, without_given_up(finds, await self._memory.given_up(job.deletion)))

    def _judge(self, job: Job, planned: CapaClaim, finds: FoundResources) -> Verdict:
        """Only a complete and empty list releases the object."""
        subject = self._latest_objects.object_of(job.deletion)
        if finds.owned:
            names = resource_names(finds.owned)
            log.warning(
                "resources are there again, or still", deletion=job.deletion, cluster=planned.name,
                count=len(finds.owned), resources=names,
            )  # fmt: skip
            spared = planned.spared if subject is None else subject.spared
            return Found(late_targets_of(finds, spared), f"there again, or still: {names}", CheckState().text)
        if finds.unreadable:
            return Refused(f"whether everything is gone can't be told: {describe_unreadable(finds)}")
        if finds.ambiguous:
            remedy = OPT_OUT_HINT if subject is None else how_to_name_vpc(finds, subject)
            return Refused(f"{describe_ambiguous(finds, 'its object')}; {remedy}")
        if not state_of(job.resume).first:
            return Pending(self._settings.settle, "nothing is left; looked at once more when it has settled")
        return Gone("a fresh list is empty")


def without_given_up(finds: FoundResources, given_up: Abandoned) -> FoundResources:
    """Resources whose jobs were abandoned or given up are neither waited for nor removed."""
    if given_up == NOTHING_ABANDONED:
        return finds

    def rest(owned: Sequence[OwnedResource]) -> list[OwnedResource]:
        return [
            one
            for one in owned
            if not given_up.covers(one.kind.name, one.resource.id, one.kind.incarnation_of(one.resource))
        ]

    return msgspec.structs.replace(finds, owned=rest(finds.owned), ambiguous=rest(finds.ambiguous))
