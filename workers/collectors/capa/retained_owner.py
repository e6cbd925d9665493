"""Owner of the resources that stay when a cluster is released without cleanup: account, name and namesakes. The live
object decides; the record of a plan counts alone only once the object is gone."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.contract.jobs import JobRecord
from service.contract.kept import KeepDecision
from service.kubernetes import ClusterError
from service.policy.capi import CLUSTERS, pause_or_move, pause_reason, read_owning_cluster
from service.settings import Settings
from service.sources.capa import TASKS, AwsSettings, Task
from workers.collectors.capa.accounts import account_fault
from workers.collectors.capa.capa_object import CapaObject, UnusableObject, parse_capa_object, require_complete
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.final_check import FINAL_CHECK, FinalCheckData
from workers.collectors.capa.kinds import CAPA_KINDS, TASKS_OUTSIDE_VPC
from workers.collectors.capa.namesakes import Namesakes
from workers.collectors.capa.preconditions import AwsPreconditions, PreconditionFailed
from workers.handlers.kept_resources import KeepRequest
from workers.handlers.source_clusters import SourceClusters
from workers.providers.aws.model import PROVIDER, AwsClients

_claim: Final = msgspec.json.Decoder(CapaClaim)
_final_check_data: Final = msgspec.json.Decoder(FinalCheckData)


class RetainedScope(NamedTuple):
    """`namesake` is another object whose resources carry the same tags, empty if there is none; `tasks` are those whose
    resources can be told apart from its. With `fault` nothing is tagged."""

    claim: CapaClaim
    namesake: str
    tasks: Collection[Task]
    fault: str = ""


class RetainedOwners:
    def __init__(
        self,
        settings: Settings,
        places: SourceClusters,
        clients: AwsClients,
        preconditions: AwsPreconditions,
        namesakes: Namesakes,
    ) -> None:
        self._expected, self._places, self._clients = settings.section(AwsSettings).account or "", places, clients
        self._preconditions, self._namesakes = preconditions, namesakes

    async def pause_or_move(self, keep: KeepRequest) -> str:
        """Why the object is paused or moving; empty if it is not. Raises ClusterError."""
        live, place = keep.live, self._places.of(keep.ref.source)
        if live is None:
            return ""
        if (still := pause_or_move(live.annotations)) is not None:
            return still.reason
        name = read_owning_cluster(live.raw)
        cluster = await place.get(CLUSTERS, live.namespace, name) if name and place is not None else None
        why = pause_reason(cluster.raw) if cluster is not None else None
        return f"Cluster {live.namespace}/{name}, which owns it, is paused by {why}" if why else ""

    async def scope(self, keep: KeepRequest) -> RetainedScope:
        """Raises UnusableObject, PreconditionFailed, AwsError, NoAccess and ClusterError if it can't be determined."""
        source, fault = keep.ref.source, ""
        jobs = [planned_claim(job) for job in keep.abandoned.jobs if job.kind == FINAL_CHECK or job.kind in CAPA_KINDS]
        if keep.live is not None:
            subject = require_complete(parse_capa_object(keep.ref.resource, keep.live.raw))
            claim, fault = await self._of_live(subject, source, jobs)
        elif jobs:
            claim = _claim_of_gone(keep, jobs)
            subject = _object_from_plan(keep, claim)
        else:
            raise UnusableObject("the object is gone, and nothing was planned for it")
        if (namesake := await self._namesakes.of(subject, source, claim.account, TASKS)) is None:
            return RetainedScope(claim, "", TASKS, fault)
        all_in_vpc = await self._namesakes.all_in_other_vpcs(subject, claim.account)
        return RetainedScope(
            claim, namesake.label, [task for task in TASKS if all_in_vpc and task not in TASKS_OUTSIDE_VPC], fault
        )

    async def _of_live(self, subject: CapaObject, source: str, jobs: Sequence[CapaClaim]) -> tuple[CapaClaim, str]:
        """The claim by the live object, and how the records of its jobs differ: records choose neither credentials nor
        account."""
        account = (await self._clients.client(subject.scope(source))).account
        if (why := account_fault(subject, account, self._expected)) is not None:
            raise PreconditionFailed(why)
        client = await self._clients.client(subject.scope(source), account=account, paced=True)
        fault = ""
        if any((one.scope, one.account, one.name) != (client.scope, account, subject.name) for one in jobs):
            fault = "the record of an abandoned job names another account, identity or cluster than the object"
        if fault or not jobs:
            # Else the plan has confirmed the VPC in that account, and it may be deleted by now.
            await self._preconditions.require_vpc(subject, client, self._expected)
        vpc = subject.vpc or ("" if fault else next((one.vpc for one in jobs if one.vpc), ""))
        claim = CapaClaim(
            scope=client.scope, account=account, name=subject.name, vpc=vpc, spared=subject.spared, both=True
        )
        return claim, fault

    async def named(self, keep: KeepRequest, remark: str) -> list[KeepDecision]:
        """Decisions for the accounts that the object or its abandoned jobs name, which could not be confirmed. None is
        stored under the name of another object that lives there."""
        found = dict[str, KeepDecision]()
        for subject, account in _named_accounts(keep):
            try:
                if await self._namesakes.of(subject, keep.ref.source, account, TASKS) is not None:
                    continue
            except (PreconditionFailed, ClusterError):
                # Unknown: a superfluous decision only holds, and can be forgotten.
                pass
            place = f"{PROVIDER}/{account}/{subject.region}"
            one = decision_of(keep, place, subject.name, subject.identity, remark)
            found[one.key] = one
        return list(found.values())


def _claim_of_gone(keep: KeepRequest, jobs: Sequence[CapaClaim]) -> CapaClaim:
    """The claim of an object that can't be read any more. The records of its jobs must be of its source and namespace:
    these choose the identities that may be used. Raises UnusableObject."""
    ref = keep.ref
    for scope in (one.scope for one in jobs):
        if (scope.source, scope.namespace) != (ref.source, ref.namespace):
            raise UnusableObject(
                f"the record of an abandoned job is of source {scope.source or 'none'} and namespace "
                f"{scope.namespace or 'none'}, and the object of source {ref.source} and namespace {ref.namespace}"
            )
    return jobs[0]


def decision_of(keep: KeepRequest, place: str, name: str, identity: str, remark: str = "") -> KeepDecision:
    ref = keep.ref
    return KeepDecision(
        v=VERSION, place=place, name=name, object=ref.label, uid=ref.uid, source=ref.source, why=ref.kept,
        at=keep.at, remark=remark, identity=identity,
    )  # fmt: skip


def planned_claim(job: JobRecord) -> CapaClaim:
    """The claim in a job's record. Raises UnusableObject."""
    try:
        return _final_check_data.decode(job.data).claim if job.kind == FINAL_CHECK else _claim.decode(job.data)
    except msgspec.DecodeError as error:
        raise UnusableObject(f"the record of abandoned job {job.kind} {job.target} can't be read: {error}") from None


def _named_accounts(keep: KeepRequest) -> Iterator[tuple[CapaObject, str]]:
    """Accounts that the object names, and those of its plan."""
    try:
        subject = require_complete(
            parse_capa_object(keep.ref.resource, keep.live.raw if keep.live is not None else b"")
        )
        yield from ((subject, account) for account in sorted({record.account for record in subject.records}))
    except UnusableObject:
        pass
    for job in keep.abandoned.jobs:
        try:
            claim = planned_claim(job)
        except UnusableObject:
            continue
        yield _object_from_plan(keep, claim), claim.account


def _object_from_plan(keep: KeepRequest, claim: CapaClaim) -> CapaObject:
    """An object that can't be read any more, as far as its plan describes it."""
    ref, scope = keep.ref, claim.scope
    return CapaObject(
        resource=ref.resource, namespace=ref.namespace, object=ref.name, uid=ref.uid, cluster="",
        cluster_uid="", name=claim.name, region=scope.region, vpc=claim.vpc, spared=claim.spared,
        identity=scope.identity, records=(), annotations={}, vpc_deleted=False, deletion_timestamp="",
        has_finalizer=False,
    )  # fmt: skip
