"""Calls of one kind on AWS, as the removal asks for them: identities, reads for many jobs at once, the delete, and the
verdicts for AWS's errors."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from service.contract import Blocked, Draw, Job, Left, Refused, Throttled, Verdict
from service.sources.aws import AwsAccess
from workers.handlers import evidence_age
from workers.handlers.lane_meter import LaneMeter
from workers.handlers.protocol import Batch
from workers.providers.aws.claims import ClaimRegistry, JudgedClaim, NoLongerWanted
from workers.providers.aws.client.metered_client import MeteredClient
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import BUDGET_EXHAUSTED, AwsError, NoAccess, PartlyRead
from workers.providers.aws.kinds.declaration import AbsentResource, AwsAttempt, AwsKind, KindStep, Lookup
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClaim, AwsClient, AwsClients, AwsResource, CallScope
from workers.providers.aws.protection import protection_reason, retention_reason
from workers.providers.aws.rechecks import ConsentRechecks
from workers.removal import Accepted, ClaimedJob, Connected, EarlyVerdict, Evidence, RemovalProgress

POLICY_COMMAND: Final = "knell role --aws-policy"
NOT_OWNED_HINT: Final = "it goes once it is its owner's again; `knell held drop` releases the object without it"
ABANDON_HINT: Final = "`knell jobs abandon` releases the object without it"

CHECKS_BEFORE_GROWTH: Final = 4
MAX_GROWTH: Final = 2
"""After so many reads that find a deletion still going on the delay doubles, and so on, so many times."""


@dataclass(frozen=True)
class RemovalContext:
    """What the kinds share."""

    clients: AwsClients
    settings: AwsAccess
    claims: ClaimRegistry
    limits: AwsLimits
    rechecks: ConsentRechecks


class AwsKindCalls:
    """Implements the KindCalls of the removal."""

    errors = (AwsError, NoAccess)
    looks_first = False

    def __init__(self, kind: AwsKind, context: RemovalContext) -> None:
        self.kind, self._kind, self._context = kind.name, kind, context
        self.delete_operation, self.check_operation = kind.delete_operation, kind.check_operation
        self.incarnation_may_change = kind.incarnation_may_change
        self.steps: Mapping[str, KindStep] = kind.steps

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._context.limits.of_lane(lane)

    # ---- claims

    def claimed(self, job: Job, lane: str) -> ClaimedJob | Verdict | Exception:
        found = self._context.claims.decode(job.data, lane.rpartition("/")[0])
        if not isinstance(found, JudgedClaim):
            return found
        if (elsewhere := self._elsewhere(job.target, found.claim)) is not None:
            return elsewhere
        return ClaimedJob(job, found.claim, found.judge)

    def _elsewhere(self, target: str, claim: AwsClaim) -> Refused | None:
        """An ARN of another account or region would be read as absent here, or not be the claim's to delete."""
        if not self._kind.id_is_arn:
            return None
        arn = self._kind.arn_of_type(target)
        if arn is None or not re.fullmatch(self._kind.id_pattern, arn.id):
            return Refused(f"{target} is no ARN of kind {self.kind}")
        if arn.account != claim.account or arn.region not in ("", claim.scope.region):
            where = f"account {arn.account or 'none'}" + (f", region {arn.region}" if arn.region else "")
            return Refused(f"{target} is of {where}, and its claim of {claim.account}, region {claim.scope.region}")
        return None

    def expected(self, claimed: ClaimedJob) -> str:
        """A kind that can't tell incarnations apart reads none, and must not take that for another one."""
        return claimed.job.incarnation if self._kind.incarnation is not None else ""

    def confirm(self, claimed: ClaimedJob) -> None:
        """The consent must be that of the collector that judges the claim, and of an owner that still wants the
        deletion."""
        if (fault := self._context.claims.consent_fault(claimed.job.deletion, claimed.claim)) is not None:
            raise EarlyVerdict(fault)
        try:
            claimed.judge.require_wanted(claimed.job, claimed.claim)
        except NoLongerWanted as unwanted:
            raise EarlyVerdict(Left(str(unwanted))) from None

    def should_recheck(self, job: Job, found: object) -> bool:
        return self._context.rechecks.is_due(job, found)

    # ---- reading

    async def connect(self, claimed: Sequence[ClaimedJob], batch: Batch) -> Connected:
        """Jobs of one lane may belong to several owners and identities; one read serves all jobs of an identity."""
        clients = await self._clients_by_scope((one.claim for one in claimed), batch.meter)
        groups: dict[tuple[str, str], list[ClaimedJob]] = {}
        by_job, failed = dict[str, MeteredClient](), dict[str, Verdict | Exception]()
        for one in claimed:
            scope: CallScope = one.claim.scope
            client = clients[scope, one.claim.account]
            if isinstance(client, MeteredClient):
                by_job[one.job.id] = client
                # Once its use from a namespace is permitted, an identity can read for jobs of every namespace.
                groups.setdefault((scope.source, scope.identity), []).append(one)
            else:
                failed[one.job.id] = client
        return Connected(list(groups.values()), by_job, failed)

    async def _clients_by_scope(
        self, claims: Iterable[AwsClaim], meter: LaneMeter
    ) -> dict[tuple[CallScope, str], MeteredClient | Verdict | Exception]:
        clients, limits = self._context.clients, self._context.limits

        async def connect(scope: CallScope, account: str) -> MeteredClient | Verdict | Exception:
            beyond = partial(clients.client, scope, account=account, paced=True)
            try:
                return MeteredClient(await clients.client(scope, account=account), meter, beyond, limits)
            except (AwsError, NoAccess) as error:
                return self.verdict_for(error, None)

        wanted = list(dict.fromkeys((claim.scope, claim.account) for claim in claims))
        return dict(zip(wanted, await asyncio.gather(*(connect(*one) for one in wanted)), strict=True))

    async def read(self, operation: str, client: AwsClient, claimed: Sequence[ClaimedJob]) -> Evidence:
        expires = evidence_age.fresh_until(evidence_age.now())
        ids, unread = sorted({one.job.target for one in claimed}), dict[str, AwsError]()
        try:
            found = await self._resources(client, operation, ids)
        except PartlyRead as error:
            # One that may not be read, for instance, says nothing about the others.
            found, unread = dict(error.found), dict(error.errors)
        verdicts = {one.job.id: verdict_for(unread[one.job.target]) for one in claimed if one.job.target in unread}
        if self._kind.check_absent is not None:
            rest = [one for one in claimed if one.job.id not in verdicts]
            absent = [gone for one in rest if (gone := self._absent(one, found.get(one.job.target))) is not None]
            unfinished = await self._kind.check_absent(client, absent) if absent else {}
            verdicts |= {
                job: verdict_for(one) if isinstance(one, Exception) else one for job, one in unfinished.items()
            }
        return Evidence(found, expires, verdicts)

    def _absent(self, claimed: ClaimedJob, found: AwsResource | None) -> AbsentResource | None:
        """None while its resource exists."""
        progress = RemovalProgress.read(claimed.job.resume, self.expected(claimed))
        if found is None or self.absent(found):
            return AbsentResource(claimed.job, progress)
        other = progress.incarnation and self.incarnation(found) != progress.incarnation
        return AbsentResource(claimed.job, progress, found) if other else None

    async def _resources(self, client: AwsClient, operation: str, ids: Sequence[str]) -> dict[str, AwsResource]:
        step = self._kind.steps.get(operation)
        if step is not None and not step.checks_ownership:
            return {one: AwsResource(kind=self.kind, id=one, tags={}) for one in ids}
        if operation == self.check_operation and self._kind.exists is not None:
            return await self._kind.exists(client, ids)
        return await self._kind.read(client, ids)

    def attempt(self, claimed: ClaimedJob, resource: AwsResource, client: AwsClient, batch: Batch) -> AwsAttempt:
        job, claim, judge = claimed
        return AwsAttempt(
            job=job,
            claim=judge.latest(job.deletion, claim),
            judge=judge,
            resource=resource,
            client=client,
            batch=batch,
            settings=self._context.settings,
        )

    async def look_up(self, operation: str, attempts: Sequence[AwsAttempt]) -> Sequence[AwsAttempt]:
        look = self._lookup(operation)
        if look is None:
            return attempts
        looked_up = await look(attempts)
        return [replace(attempt, looked_up=looked_up) for attempt in attempts]

    def _lookup(self, operation: str) -> Lookup | None:
        step = self._kind.steps.get(operation)
        if step is not None:
            return step.lookup
        return self._kind.lookup if operation == self.delete_operation else None

    # ---- judging

    def absent(self, resource: AwsResource) -> str:
        return resource.state if resource.state in self._kind.absent_states else ""

    def deleting(self, resource: AwsResource) -> str:
        return f"it is {resource.state}" if resource.state in self._kind.deleting_states else ""

    def incarnation(self, resource: AwsResource) -> str:
        return self._kind.incarnation_of(resource)

    def owns(self, claimed: ClaimedJob, resource: AwsResource) -> Verdict | None:
        reason = claimed.judge.owns(claimed.claim, resource)
        # It was the owner's when it was planned, or could not be read then: an operator has to decide.
        return Refused(f"{reason}; {NOT_OWNED_HINT}") if reason is not None else None

    def kept(self, resource: AwsResource) -> Verdict | None:
        if kept := retention_reason(resource):
            return Left(f"left where it is: {kept}")
        if kept := protection_reason(resource):
            return Refused(f"{kept}; {ABANDON_HINT}")
        return None

    # ---- deleting

    async def obstacle(self, attempt: AwsAttempt, operation: str) -> Verdict | None:
        judge, found = attempt.judge, attempt.resource
        if judge.older(attempt.claim, found) and (why := judge.older(await attempt.live_claim(), found)):
            # By the live object: it may have adopted the resource since the plan.
            return Refused(why)
        if operation == self.delete_operation and self._kind.precheck is not None:
            return await self._kind.precheck(attempt)
        return None

    async def delete(self, attempt: AwsAttempt) -> Accepted | Verdict:
        kind = self._kind
        try:
            answer = await kind.delete(attempt)
        except AwsError as error:
            if error.what == "gone" or error.code in kind.gone_codes:
                return Accepted(f"said to be gone: {error.code}")
            depends = error.what == "depends" or error.code in kind.dependency_codes
            if depends and kind.on_dependency is not None:
                return await kind.on_dependency(attempt, error)
            if depends:
                return Blocked(str(error), unseen=True)
            if error.what == "protected" and kind.on_protected is not None:
                return await kind.on_protected(attempt, error)
            raise
        return Accepted("deleted") if answer is None else answer

    def check_delay(self, checks: int) -> timedelta:
        """Aligned with the checks of other resources, so that one read serves many."""
        growth = min(MAX_GROWTH, checks // CHECKS_BEFORE_GROWTH)
        return aligned_delay(self._context.settings.check_after * 2**growth, 0.5)

    def verdict_for(self, error: Exception, claimed: ClaimedJob | None) -> Verdict | Exception:
        del claimed
        return verdict_for(error)


def verdict_for(error: Exception) -> Verdict | Exception:
    """Verdict for the jobs that the error stopped; other errors count as a failed attempt."""
    if isinstance(error, NoAccess):
        return Blocked(str(error), person=True) if error.again else Refused(str(error))
    if not isinstance(error, AwsError):
        return error
    match error.what:
        case "throttled":
            return Throttled(error.after, str(error), unasked=error.code == BUDGET_EXHAUSTED)
        case "denied":
            return Refused(f"{error.action} is denied ({error.code}); allow it, as `{POLICY_COMMAND}` prints it")
        case "depends":
            return Blocked(str(error))
        case "protected":
            return Refused(f"it is protected: {error}")
        case "unsupported":
            return Refused(f"{error}; {ABANDON_HINT}")
        case _:
            return error.with_traceback(None)
