"""Sees to it that what stays of a cluster on AWS can be recognised as that: found, tagged, and named for the memory.
Only the tag is ever written. What can't be told of whose account it is, is not guessed: nothing is marked there."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from service.cluster import ClusterError
from service.contract import VERSION
from service.contract.aws import TASKS, Task
from service.contract.kept import Decision, KeptResource
from service.settings import Settings
from workers.handlers.aws.accounts import account_fault
from workers.handlers.aws.checking import SETTLED, Settling
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.finding import KIND, Finding, Finds, StillListing
from workers.handlers.aws.marking import mark
from workers.handlers.aws.model import PROVIDER, Calls, Kind, Owner, Reach
from workers.handlers.aws.namesakes import Namesakes
from workers.handlers.aws.owners import Subject, Unclear, subject_of, whole
from workers.handlers.aws.tasks import NOWHERE
from workers.handlers.aws.words import unread
from workers.handlers.memory import Keep, NotMarked

_owner: Final = msgspec.json.Decoder(Owner)
_settling: Final = msgspec.json.Decoder(Settling)


class Keeping:
    def __init__(
        self, settings: Settings, reach: Reach, finding: Finding, evidence: Evidence, namesakes: Namesakes
    ) -> None:
        self._aws, self._reach, self._finding = settings.aws, reach, finding
        self._evidence, self._namesakes = evidence, namesakes

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        """Raises NotMarked. Where the account can't be reached, the accounts that the object itself names count."""
        try:
            owner, tasks, remark = await self._owner(keep)
        except (Unclear, Held, AwsError, NoAccess, ClusterError) as error:
            again = not isinstance(error, Unclear | Held) and getattr(error, "again", True)
            raise NotMarked(str(error), list(_named(keep, f"not marked: {error}")), again=again) from None
        bare = _decision(keep, owner.place, owner.name, remark)
        if not self._aws.mark_retained:
            return [bare]
        try:
            return [await self._marked(keep, owner, tasks, bare)]
        except (AwsError, NoAccess, StillListing) as error:
            raise NotMarked(str(error), [msgspec.structs.replace(bare, remark=f"not marked: {error}")]) from None

    async def _owner(self, keep: Keep) -> tuple[Owner, Collection[Task], str]:
        """Whose resources stay, by the plan where there was one; of what is in no VPC only if no namesake lives."""
        for job in keep.abandoned.jobs:
            # The plan proved the account; it is not asked again whether the object is still as it was.
            owner = _settling.decode(job.data).owner if job.kind == SETTLED else _owner.decode(job.data)
            return owner, TASKS, ""
        if keep.live is None:
            raise Unclear("the object is gone, and nothing was planned for it")
        subject = whole(subject_of(keep.about.resource, keep.live.raw))
        source = keep.about.source
        account = (await self._reach.calls(subject.whose(source))).account
        if (fault := account_fault(subject, account, self._aws.account or "")) is not None:
            raise Held(fault)
        calls = await self._reach.calls(subject.whose(source), account=account, paced=True)
        await self._evidence.vpc(subject, calls, self._aws.account or "")
        owner = Owner(
            whose=calls.whose, account=account, name=subject.name, vpc=subject.vpc, spared=subject.spared, both=True
        )
        if await self._is_alone(subject, source, account):
            return owner, TASKS, ""
        tasks = [task for task in TASKS if task not in NOWHERE]
        return owner, tasks, "what is in no VPC was not marked, for it may be that of a namesake"

    async def _is_alone(self, subject: Subject, source: str, account: str) -> bool:
        try:
            return await self._namesakes.of(subject, source, account, TASKS) is None
        except (Held, ClusterError):
            return False

    async def _marked(self, keep: Keep, owner: Owner, tasks: Collection[Task], bare: Decision) -> Decision:
        calls = await self._reach.calls(owner.whose, account=owner.account, patient=True)
        if not _is_whole(keep):
            jobs = [(KIND[job.kind], job.target) for job in keep.abandoned.jobs if job.kind in KIND]
            return msgspec.structs.replace(bare, resources=tuple(await mark(calls, jobs, keep.mark)))
        finds = await self._finding.find(owner, tasks, calls, name=f"keep {keep.about.deletion}")
        resources = await self._mark_all(calls, finds, keep.mark)
        remark = "; ".join(part for part in (bare.remark, unread(finds)) if part)
        return msgspec.structs.replace(bare, resources=tuple(resources), remark=remark)

    async def _mark_all(self, calls: Calls, finds: Finds, value: str) -> list[KeptResource]:
        fresh: list[tuple[Kind, str]] = [(claim.kind, claim.found.id) for claim in finds.claims]
        before = [KeptResource(claim.kind.name, claim.found.id) for claim in finds.kept]
        return [*before, *await mark(calls, fresh, value)]


def _decision(keep: Keep, place: str, name: str, remark: str) -> Decision:
    about = keep.about
    return Decision(
        v=VERSION, place=place, name=name, object=about.object, uid=about.uid, source=about.source, why=about.kept,
        at=keep.at, remark=remark,
    )  # fmt: skip


def _named(keep: Keep, remark: str) -> Iterator[Decision]:
    """By what the object says of its account, which nobody could confirm."""
    try:
        subject = whole(subject_of(keep.about.resource, keep.live.raw if keep.live is not None else b""))
    except Unclear:
        return
    for account in sorted({record.account for record in subject.records}):
        yield _decision(keep, f"{PROVIDER}/{account}/{subject.region}", subject.name, remark)


def _is_whole(keep: Keep) -> bool:
    """Also where the last look was abandoned, or what can't be read: then anything may be left."""
    return keep.whole or bool(keep.abandoned.unknown) or any(job.kind == SETTLED for job in keep.abandoned.jobs)
