"""Finds and tags the AWS resources that stay when a cluster is released without them, and returns decisions to store.
Only the tag is ever written. What may belong to another cluster, or is in another account, is not tagged."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import structlog

from service.contract.kept import Decision, KeptResource
from service.kubernetes import ClusterError
from service.settings import Settings
from workers.handlers.aws.checking import SETTLED
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.finding import KIND, Finding, Finds, Ids, StillListing
from workers.handlers.aws.kept_owners import KeptOwners, Scope, decision_of, planned
from workers.handlers.aws.marking import mark
from workers.handlers.aws.model import By, Reach
from workers.handlers.aws.namesakes import Namesakes
from workers.handlers.aws.owners import Unclear
from workers.handlers.aws.words import unread, vague
from workers.handlers.memory import Keep, NotMarked
from workers.handlers.places import Places

log = structlog.get_logger(__name__)


class Keeping:
    def __init__(
        self,
        settings: Settings,
        places: Places,
        reach: Reach,
        finding: Finding,
        evidence: Evidence,
        namesakes: Namesakes,
    ) -> None:
        self._marks, self._reach, self._finding = settings.aws.mark_retained, reach, finding
        self._owners = KeptOwners(settings, places, reach, evidence, namesakes)

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        """Raises NotMarked. Where the account can't be reached, the accounts that the object itself names count."""
        try:
            if why := await self._owners.stands_still(keep):
                # It lives on, here or elsewhere: that is no decision to keep what it owns.
                log.info("nothing is marked", deletion=keep.about.deletion, reason=why)
                return ()
            scope = await self._owners.scope(keep)
        except (Unclear, Held, AwsError, NoAccess, ClusterError) as error:
            again = not isinstance(error, Unclear | Held) and getattr(error, "again", True)
            named = await self._owners.named(keep, f"not marked: {error}")
            raise NotMarked(str(error), named, again=again, after=_after(error)) from None
        remark = f"not marked: {scope.fault}" if scope.fault else ""
        owner = scope.owner
        bare = decision_of(keep, owner.place, owner.name, owner.whose.identity, remark)
        if scope.fault or not self._marks:
            return _remembered(bare, scope)
        try:
            found = await self._marked(keep, scope, bare)
        except (AwsError, NoAccess, StillListing) as error:
            late = msgspec.structs.replace(bare, remark=f"not marked: {error}")
            raise NotMarked(str(error), _remembered(late, scope), after=_after(error)) from None
        # Of a cluster that left nothing there is nothing to remember.
        return _remembered(found, scope) if found.resources or found.remark else ()

    async def _marked(self, keep: Keep, scope: Scope, bare: Decision) -> Decision:
        """What is listed is listed in the background. For a tag nothing is waited for here: where the budget has no
        room, the release job comes back, and finds tagged what was tagged before."""
        owner, name = scope.owner, f"keep {keep.about.deletion}"
        listing = await self._reach.calls(owner.whose, account=owner.account, patient=True)
        if not _is_whole(keep):
            finds, remark = await self._finding.find_by_id(owner, _ids(keep), listing, name=name), _strange(keep)
        elif not scope.tasks:
            return msgspec.structs.replace(bare, remark="nothing is marked, for it may be the namesake's")
        else:
            finds = await self._finding.find(owner, scope.tasks, listing, name=name)
            remark = _unclear(finds, keep)
        calls = await self._reach.calls(owner.whose, account=owner.account, paced=True)
        fresh = [(claim.kind, claim.found.id) for claim in finds.claims]
        before = [KeptResource(claim.kind.name, claim.found.id) for claim in finds.kept]
        resources = (*before, *await mark(calls, fresh, keep.mark))
        return msgspec.structs.replace(bare, resources=resources, remark=remark)


def _ids(keep: Keep) -> Ids:
    """Of what was abandoned."""
    ids = dict[str, dict[str, By]]()
    for job in keep.abandoned.jobs:
        if job.kind in KIND:
            ids.setdefault(job.kind, {})[job.target] = planned(job).by
    return ids


def _strange(keep: Keep) -> str:
    strange = sorted(job.target for job in keep.abandoned.jobs if job.kind not in KIND)
    return f"not marked, for their kind is not known: {', '.join(strange)}" if strange else ""


def _after(error: Exception) -> timedelta | None:
    """When there will be room for a call, where the budget or AWS says."""
    return error.after if isinstance(error, AwsError) else None


def _unclear(finds: Finds, keep: Keep) -> str:
    """Why there may be more than what was found; empty where the list is whole."""
    odd = f"ARNs that can't be understood: {', '.join(finds.odd)}" if finds.odd else ""
    unsure = vague(finds, keep.about.object) if finds.vague else ""
    return "; ".join(part for part in (unread(finds), odd, unsure) if part)


def _remembered(decision: Decision, scope: Scope) -> Sequence[Decision]:
    """Nothing beside a namesake: its own deletion would be held by that."""
    if not scope.namesake:
        return [decision]
    log.warning(
        "what stays is not remembered, for another object has the same name in its tags", object=decision.object,
        uid=decision.uid, name=decision.key, namesake=scope.namesake, why=decision.why, remark=decision.remark,
        resources=[one.id for one in decision.resources],
    )  # fmt: skip
    return ()


def _is_whole(keep: Keep) -> bool:
    """Also where the last look was abandoned, or what can't be read: then anything may be left."""
    return keep.whole or bool(keep.abandoned.unknown) or any(job.kind == SETTLED for job in keep.abandoned.jobs)
