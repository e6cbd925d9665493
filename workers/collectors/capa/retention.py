"""Finds and tags the AWS resources that stay when a cluster is released without cleanup, and returns decisions to
store. Only the tag is ever written. Resources that may belong to another cluster, or are in another account, are not
tagged."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import structlog

from service.contract.kept import KeepDecision, KeptResource
from service.kubernetes import ClusterError
from service.settings import Settings
from service.sources.capa import AwsSettings
from workers.collectors.capa.capa_object import UnusableObject
from workers.collectors.capa.claim import OwnerTag
from workers.collectors.capa.final_check import FINAL_CHECK
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.messages import describe_ambiguous, describe_unreadable
from workers.collectors.capa.namesakes import Namesakes
from workers.collectors.capa.preconditions import AwsPreconditions, PreconditionFailed
from workers.collectors.capa.resource_finder import FoundResources, IdsByKind, ResourceFinder, StillListing
from workers.collectors.capa.retained_owner import RetainedOwners, RetainedScope, decision_of, planned_claim
from workers.handlers.kept_resources import KeepRequest, NotMarked
from workers.handlers.source_clusters import SourceClusters
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import AwsClients
from workers.providers.aws.retained_tag_calls import write_retained_tag

log = structlog.get_logger(__name__)


class AwsRetention:
    def __init__(
        self,
        settings: Settings,
        places: SourceClusters,
        clients: AwsClients,
        finder: ResourceFinder,
        preconditions: AwsPreconditions,
        namesakes: Namesakes,
    ) -> None:
        self._marks, self._clients, self._finder = settings.section(AwsSettings).mark_retained, clients, finder
        self._owners = RetainedOwners(settings, places, clients, preconditions, namesakes)

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        """Raises NotMarked. If the account is inaccessible, the accounts that the object names are used."""
        try:
            if why := await self._owners.pause_or_move(keep):
                # The cluster lives on, here or elsewhere: that is no decision to keep its resources.
                log.info("nothing is marked", deletion=keep.ref.deletion, reason=why)
                return ()
            scope = await self._owners.scope(keep)
        except (UnusableObject, PreconditionFailed, AwsError, NoAccess, ClusterError) as error:
            again = not isinstance(error, UnusableObject | PreconditionFailed) and getattr(error, "again", True)
            named = await self._owners.named(keep, f"not marked: {error}")
            raise NotMarked(str(error), named, again=again, after=_retry_after(error)) from None
        remark = f"not marked: {scope.fault}" if scope.fault else ""
        claim = scope.claim
        bare = decision_of(keep, claim.place, claim.name, claim.scope.identity, remark)
        if scope.fault or not self._marks:
            return _to_store(bare, scope)
        try:
            found = await self._marked(keep, scope, bare)
        except (AwsError, NoAccess, StillListing) as error:
            late = msgspec.structs.replace(bare, remark=f"not marked: {error}")
            raise NotMarked(str(error), _to_store(late, scope), after=_retry_after(error)) from None
        # A cluster that left nothing needs no decision.
        return _to_store(found, scope) if found.resources or found.remark else ()

    async def _marked(self, keep: KeepRequest, scope: RetainedScope, bare: KeepDecision) -> KeepDecision:
        """Lists continue in the background. Tag calls do not wait here: if the budget is exhausted, the release job is
        retried and skips what is tagged already."""
        claim, name = scope.claim, f"keep {keep.ref.deletion}"
        listing = await self._clients.client(claim.scope, account=claim.account, patient=True)
        if not _covers_everything(keep):
            finds, remark = (
                await self._finder.find_by_id(claim, _abandoned_ids(keep), listing, name=name),
                _unknown_kinds(keep),
            )
        elif not scope.tasks:
            return msgspec.structs.replace(bare, remark="nothing is marked, for it may be the namesake's")
        else:
            finds = await self._finder.find(claim, scope.tasks, listing, name=name)
            remark = _incomplete_because(finds, keep)
        client = await self._clients.client(claim.scope, account=claim.account, paced=True)
        fresh = [(item.kind, item.resource.id) for item in finds.owned]
        before = [KeptResource(item.kind.name, item.resource.id) for item in finds.retained]
        resources = (*before, *await write_retained_tag(client, fresh, keep.mark))
        return msgspec.structs.replace(bare, resources=resources, remark=remark)


def _abandoned_ids(keep: KeepRequest) -> IdsByKind:
    """Ids of abandoned jobs, by kind."""
    ids = dict[str, dict[str, OwnerTag]]()
    for job in keep.abandoned.jobs:
        if job.kind in CAPA_KINDS:
            ids.setdefault(job.kind, {})[job.target] = planned_claim(job).by
    return ids


def _unknown_kinds(keep: KeepRequest) -> str:
    strange = sorted(job.target for job in keep.abandoned.jobs if job.kind not in CAPA_KINDS)
    return f"not marked, for their kind is not known: {', '.join(strange)}" if strange else ""


def _retry_after(error: Exception) -> timedelta | None:
    """When to retry, if the budget or AWS says so."""
    return error.after if isinstance(error, AwsError) else None


def _incomplete_because(finds: FoundResources, keep: KeepRequest) -> str:
    """Why the list may be incomplete; empty if it is complete."""
    odd = f"ARNs that can't be understood: {', '.join(finds.unparsed_arns)}" if finds.unparsed_arns else ""
    unsure = describe_ambiguous(finds, keep.ref.label) if finds.ambiguous else ""
    return "; ".join(part for part in (describe_unreadable(finds), odd, unsure) if part)


def _to_store(decision: KeepDecision, scope: RetainedScope) -> Sequence[KeepDecision]:
    """No decision if there is a namesake: it would hold the namesake's own deletion."""
    if not scope.namesake:
        return [decision]
    log.warning(
        "what stays is not remembered, for another object has the same name in its tags", object=decision.object,
        uid=decision.uid, name=decision.key, namesake=scope.namesake, why=decision.why, remark=decision.remark,
        resources=[one.id for one in decision.resources],
    )  # fmt: skip
    return ()


def _covers_everything(keep: KeepRequest) -> bool:
    """Also if the final check was abandoned, or a record can't be read: then anything may be left."""
    return keep.whole or bool(keep.abandoned.unknown) or any(job.kind == FINAL_CHECK for job in keep.abandoned.jobs)
