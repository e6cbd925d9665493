"""Collector of AWSClusters and AWSManagedControlPlanes: plans the deletion of their external resources. Nothing is
planned before account, VPC and ownership are known and nothing runs that could recreate the resources."""

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from service.contract import FINALLY, Hold, Plan, Target, Undecodable
from service.contract.kept import KeepDecision
from service.kubernetes import ClusterError
from service.settings import Settings
from service.sources.capa import CAPA, AwsSettings, Task
from workers.collectors.capa import capa_object, preconditions
from workers.collectors.capa.accounts import account_fault
from workers.collectors.capa.capa_object import OPT_OUT_HINT, CapaObject, UnusableObject
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.deleting_namesakes import DeletingNamesakes, GuardCheck
from workers.collectors.capa.final_check import FINAL_CHECK, FinalCheckData, lane_of
from workers.collectors.capa.kinds import BALANCER_TASK, BOTH_GROUP_TASKS
from workers.collectors.capa.latest_objects import LatestObjects, ObjectState
from workers.collectors.capa.messages import describe_ambiguous, describe_error, how_to_name_vpc, plan_remarks
from workers.collectors.capa.namesakes import Namesakes
from workers.collectors.capa.preconditions import AwsPreconditions, PreconditionFailed
from workers.collectors.capa.resource_finder import ResourceFinder, StillListing
from workers.collectors.capa.retention import AwsRetention
from workers.collectors.capa.running_check import RunningCheck
from workers.collectors.capa.targets import targets_of
from workers.collectors.capa.tasks import all_in_vpc, tasks_of
from workers.handlers.collector import ObjectFacts
from workers.handlers.kept_resources import KeepRequest, KeptRecords, NoKeptRecords
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.claims import RecordConsent
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import PROVIDER, AwsClients


class CapaCollector:
    """`latest_objects` passes what was last read of each object to the handlers; `consented` tells the provider of a
    deletion that nothing speaks against, and where its object's resources are."""

    name = CAPA
    metadata_only = False

    def __init__(
        self,
        settings: Settings,
        places: SourceClusters,
        clients: AwsClients,
        finder: ResourceFinder,
        latest_objects: LatestObjects,
        consented: RecordConsent,
        guard_check: GuardCheck | None = None,
        memory: KeptRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.latest_objects, self._consented, self._clock = latest_objects, consented, clock
        self._aws, self._places, self._clients, self._finder = settings.section(AwsSettings), places, clients, finder
        self._expected = settings.section(AwsSettings).account or ""
        self._preconditions = AwsPreconditions(clock)
        self._running_check = RunningCheck(self._preconditions, clock)
        deleting = DeletingNamesakes(settings, places, clients, self._preconditions, guard_check)
        self._namesakes = Namesakes(settings, places, clients, deleting.conflict)
        self._memory = memory or NoKeptRecords()
        self._retention = AwsRetention(settings, places, clients, finder, self._preconditions, self._namesakes)

    async def collect(self, facts: ObjectFacts) -> Plan | Hold:
        try:
            return await self._collect(facts)
        except UnusableObject as error:
            return Hold(str(error), again=True)
        except PreconditionFailed as held:
            return Hold(str(held), again=True, after=held.after, waits=held.waits)
        except StillListing as going:
            return Hold(str(going), again=True, after=preconditions.RETRY_SOON, waits=True)
        except NoAccess as error:
            return Hold(str(error), again=True, after=preconditions.RETRY_SOON if error.again else None)
        except AwsError as error:
            after, waits = error.after or preconditions.RETRY_SOON, error.what == "throttled"
            return Hold(describe_error(error), again=True, after=None if error.what == "denied" else after, waits=waits)
        except ClusterError as error:
            reason = f"its management cluster can't be asked: {type(error).__name__}: {error}"
            return Hold(reason, again=True, after=preconditions.RETRY_SOON)

    async def objections(self, facts: ObjectFacts) -> Hold | None:
        """Checks right before a destructive call, for the tasks that the object wants now. The attempt itself reads the
        resource, in the account recorded in its target. Raises if a check can't be made."""
        try:
            subject, place = self._subject(facts)
            await preconditions.require_not_moving(subject, place)
            tasks = tasks_of(subject.annotations, self._aws)
            # Resources outside a VPC are identified by their tag alone: for those, the list of namesakes must be new.
            account = await self._account(subject, facts, tasks, recent=all_in_vpc(tasks))
            scope = subject.scope(facts.ref.source)
            client = await self._clients.client(scope, account=account, paced=True)
            await self._running_check.require_nothing_running(subject, place, client, all_in_vpc=all_in_vpc(tasks))
        except PreconditionFailed as held:
            return Hold(str(held), waits=held.waits)
        except (UnusableObject, NoAccess) as error:
            return Hold(str(error))
        except AwsError as error:
            if error.what not in ("denied", "throttled"):
                raise
            return Hold(describe_error(error), waits=error.what == "throttled")
        abandoned = await self._memory.abandoned(facts.ref.deletion)
        # Of names that can be used again only the incarnation that was abandoned stays; the final check compares it.
        given_up = tuple(job.target for job in abandoned.jobs if not job.incarnation)
        state = ObjectState(
            subject=subject, source=facts.ref.source, account=account, tasks=tasks, abandoned=given_up
        )  # fmt: skip
        self.latest_objects.record(facts.ref.deletion, state)
        self._consented(facts.ref.deletion, scope, account)
        return None

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        return await self._retention.keep(keep)

    async def aclose(self) -> None:
        await self._preconditions.aclose()
        await self._namesakes.aclose()

    # ---- collecting

    async def _collect(self, facts: ObjectFacts) -> Plan:
        (subject, place), began = self._subject(facts), self._clock()
        tasks = tasks_of(subject.annotations, self._aws)
        await preconditions.require_not_moving(subject, place)
        early = [await _too_early(subject, preconditions.require_no_machines(subject, place))]
        account = await self._account(subject, facts, tasks, recent=False)
        client = await self._clients.client(subject.scope(facts.ref.source), account=account, paced=True)
        await self._preconditions.require_vpc(subject, client, self._expected)
        early.append(
            await _too_early(
                subject, self._preconditions.require_nothing_running(subject, client, all_in_vpc=all_in_vpc(tasks))
            )
        )
        if not any(early):
            self._running_check.record_passed(subject, account, began, all_in_vpc=all_in_vpc(tasks))
        claim = CapaClaim(
            scope=client.scope, account=account, name=subject.name, vpc=subject.vpc, snapshot=self._aws.snapshot_first,
            both={*tasks} >= BOTH_GROUP_TASKS, balancers=BALANCER_TASK in tasks, spared=subject.spared,
            made=subject.made, adopted=subject.adopted,
        )  # fmt: skip
        patient = await self._clients.client(client.scope, account=account, patient=True)
        # A repeated plan returns for the same list; resources created since are left to the final check.
        finds = await self._finder.find(claim, tasks, patient, name=f"plan {facts.ref.deletion}")
        if finds.ambiguous:
            raise PreconditionFailed(
                f"{describe_ambiguous(finds, subject.label)}; {how_to_name_vpc(finds, subject)}",
                preconditions.RETRY_LATER,
            )
        return Plan(
            [*targets_of(finds), self._last(claim, tasks)], "; ".join(filter(None, (*early, plan_remarks(finds))))
        )

    def _subject(self, facts: ObjectFacts) -> tuple[CapaObject, SourceCluster]:
        place, live = self._places.of(facts.ref.source), facts.live
        if place is None:
            raise PreconditionFailed(f"this process has no way to the cluster of source {facts.ref.source}")
        if live is None or not bytes(live.raw):
            raise UnusableObject(f"the text of {facts.ref.label} is not at hand")
        return capa_object.require_complete(capa_object.parse_capa_object(facts.ref.resource, live.raw)), place

    async def _account(self, subject: CapaObject, facts: ObjectFacts, tasks: tuple[Task, ...], *, recent: bool) -> str:
        """The credentials' account, once all records of the object agree with it and no namesake shares it."""
        account = (await self._clients.client(subject.scope(facts.ref.source))).account
        if (fault := account_fault(subject, account, self._expected)) is not None:
            raise PreconditionFailed(fault, preconditions.RETRY_LATER)
        other = await self._namesakes.of(subject, facts.ref.source, account, tasks, recent=recent)
        if other is not None:
            why = f" (both are being deleted, but {other.conflict.why})" if other.conflict.why else ""
            raise PreconditionFailed(
                f"{other.label} has the same name in its tags ({subject.name}), in the same region and, as far as is "
                f"known, in the same account: what is tagged may be its{why}; {OPT_OUT_HINT}",
                # A namesake in deletion may be gone soon; any other needs an operator.
                preconditions.RETRY_SOON if other.conflict.why else preconditions.RETRY_LATER,
                waits=other.conflict.waits,
            )
        await self._nothing_kept(subject, account)
        return account

    async def _nothing_kept(self, subject: CapaObject, account: str) -> None:
        """Holds if an earlier object of that name kept resources: they carry the same tag."""
        try:
            kept = await self._memory.decisions(f"{PROVIDER}/{account}/{subject.region}", subject.name)
        except Undecodable as error:
            raise PreconditionFailed(str(error), preconditions.RETRY_LATER) from None
        if before := next((one for one in kept if one.uid != subject.uid), None):
            raise PreconditionFailed(f"{before.hold_reason}; {OPT_OUT_HINT}", preconditions.RETRY_LATER)

    def _last(self, claim: CapaClaim, tasks: tuple[Task, ...]) -> Target:
        """The final check: verifies that nothing is left or was created again."""
        data = msgspec.json.encode(FinalCheckData(claim=claim, tasks=tasks)).decode()
        return Target(
            kind=FINAL_CHECK, id=claim.name, lane=lane_of(claim), chain=FINALLY, data=data, after=self._aws.settle
        )


async def _too_early(subject: CapaObject, look: Awaitable[None]) -> str:
    """For an object that is not being deleted, whose plan is only displayed, a failed precondition is a remark."""
    try:
        await look
    except PreconditionFailed as held:
        if subject.is_deleting:
            raise
        return str(held)
    return ""
