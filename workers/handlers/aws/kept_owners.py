"""Whose resources stay when a cluster on AWS is released without them: its account, its name, and its namesakes.
The object itself says it where it is there; a record of its plan counts alone only once it is gone."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from service.contract import VERSION
from service.contract.aws import CLUSTERS, TASKS, Task
from service.contract.jobs import Record
from service.contract.kept import Decision
from service.kubernetes import ClusterError
from service.policy.capi import owner_in, paused, stands_still
from service.settings import Settings
from workers.handlers.aws.accounts import account_fault
from workers.handlers.aws.checking import SETTLED, Settling
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.finding import KIND
from workers.handlers.aws.model import PROVIDER, Owner, Reach
from workers.handlers.aws.namesakes import Namesakes
from workers.handlers.aws.owners import Subject, Unclear, subject_of, whole
from workers.handlers.aws.tasks import NOWHERE
from workers.handlers.memory import Keep
from workers.handlers.places import Places

_owner: Final = msgspec.json.Decoder(Owner)
_settling: Final = msgspec.json.Decoder(Settling)


class Scope(NamedTuple):
    """`namesake` is another object whose resources carry the same tags, empty where there is none; `tasks` are those
    whose resources can be told apart from its. With `fault` nothing is to be marked."""

    owner: Owner
    namesake: str
    tasks: Collection[Task]
    fault: str = ""


class KeptOwners:
    def __init__(
        self, settings: Settings, places: Places, reach: Reach, evidence: Evidence, namesakes: Namesakes
    ) -> None:
        self._expected, self._places, self._reach = settings.aws.account or "", places, reach
        self._evidence, self._namesakes = evidence, namesakes

    async def stands_still(self, keep: Keep) -> str:
        """By what the object moves or is paused; empty where it does not. Raises ClusterError."""
        live, place = keep.live, self._places.of(keep.about.source)
        if live is None:
            return ""
        if (still := stands_still(live.annotations)) is not None:
            return still.reason
        name = owner_in(live.raw)
        cluster = await place.get(CLUSTERS, live.namespace, name) if name and place is not None else None
        why = paused(cluster.raw) if cluster is not None else None
        return f"Cluster {live.namespace}/{name}, which owns it, is paused by {why}" if why else ""

    async def scope(self, keep: Keep) -> Scope:
        """Raises Unclear, Held, AwsError, NoAccess and ClusterError where it can't be told."""
        source, fault = keep.about.source, ""
        jobs = [planned(job) for job in keep.abandoned.jobs if job.kind == SETTLED or job.kind in KIND]
        if keep.live is not None:
            subject = whole(subject_of(keep.about.resource, keep.live.raw))
            owner, fault = await self._of_live(subject, source, jobs)
        elif jobs:
            owner = jobs[0]
            subject = _gone(keep, owner)
        else:
            raise Unclear("the object is gone, and nothing was planned for it")
        if (namesake := await self._namesakes.of(subject, source, owner.account, TASKS)) is None:
            return Scope(owner, "", TASKS, fault)
        apart = await self._namesakes.all_elsewhere(subject, owner.account)
        return Scope(owner, namesake.called, [task for task in TASKS if apart and task not in NOWHERE], fault)

    async def _of_live(self, subject: Subject, source: str, jobs: Sequence[Owner]) -> tuple[Owner, str]:
        """As the object says it now, and how the records of its jobs differ: they don't choose whose credentials are
        used, nor where."""
        account = (await self._reach.calls(subject.whose(source))).account
        if (why := account_fault(subject, account, self._expected)) is not None:
            raise Held(why)
        calls = await self._reach.calls(subject.whose(source), account=account, paced=True)
        fault = ""
        if any((one.whose, one.account, one.name) != (calls.whose, account, subject.name) for one in jobs):
            fault = "the record of an abandoned job names another account, identity or cluster than the object"
        if fault or not jobs:
            # Else its plan has seen the VPC in that account, and it may be gone by now.
            await self._evidence.vpc(subject, calls, self._expected)
        vpc = subject.vpc or ("" if fault else next((one.vpc for one in jobs if one.vpc), ""))
        owner = Owner(whose=calls.whose, account=account, name=subject.name, vpc=vpc, spared=subject.spared, both=True)
        return owner, fault

    async def named(self, keep: Keep, remark: str) -> list[Decision]:
        """By what the object, or its abandoned jobs, say of their account, which could not be confirmed. Nothing is
        remembered under the name of another object that lives there."""
        found = dict[str, Decision]()
        for subject, account in _said(keep):
            try:
                if await self._namesakes.of(subject, keep.about.source, account, TASKS) is not None:
                    continue
            except (Held, ClusterError):
                # It can't be told: a decision too many holds, and can be forgotten.
                pass
            place = f"{PROVIDER}/{account}/{subject.region}"
            one = decision_of(keep, place, subject.name, subject.identity, remark)
            found[one.key] = one
        return list(found.values())


def decision_of(keep: Keep, place: str, name: str, identity: str, remark: str = "") -> Decision:
    about = keep.about
    return Decision(
        v=VERSION, place=place, name=name, object=about.object, uid=about.uid, source=about.source, why=about.kept,
        at=keep.at, remark=remark, identity=identity,
    )  # fmt: skip


def planned(job: Record) -> Owner:
    """Whose resource a job is about, by its record. Raises Unclear."""
    try:
        return _settling.decode(job.data).owner if job.kind == SETTLED else _owner.decode(job.data)
    except msgspec.DecodeError as error:
        raise Unclear(f"the record of abandoned job {job.kind} {job.target} can't be read: {error}") from None


def _said(keep: Keep) -> Iterator[tuple[Subject, str]]:
    """The accounts that the object names, and those that its plan was about."""
    try:
        subject = whole(subject_of(keep.about.resource, keep.live.raw if keep.live is not None else b""))
        yield from ((subject, account) for account in sorted({record.account for record in subject.records}))
    except Unclear:
        pass
    for job in keep.abandoned.jobs:
        try:
            owner = planned(job)
        except Unclear:
            continue
        yield _gone(keep, owner), owner.account


def _gone(keep: Keep, owner: Owner) -> Subject:
    """What is known by its plan of an object that can't be read any more."""
    about, whose = keep.about, owner.whose
    return Subject(
        resource=about.resource, namespace=about.namespace, object=about.name, uid=about.uid, cluster="",
        cluster_uid="", name=owner.name, region=whose.region, vpc=owner.vpc, spared=owner.spared,
        identity=whose.identity, records=(), annotations={}, vpc_deleted=False, deleting="", marked=False,
    )  # fmt: skip
