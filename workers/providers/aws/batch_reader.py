"""Reader that prepares the jobs of a batch: resolves identities, reads the resources and checks ownership. One read
serves all jobs of an identity; each job is judged by itself and keeps the client of its own claim."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from service.contract import Blocked, Gone, Job, Left, Pending, Refused, Throttled, Verdict
from service.sources.aws import AwsAccess
from workers.handlers import evidence_age
from workers.handlers.batch_tokens import BatchTokens
from workers.handlers.protocol import Batch
from workers.providers.aws.claims import ClaimJudge, ClaimRegistry, JudgedClaim
from workers.providers.aws.client.metered_client import MeteredClient
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import BUDGET_EXHAUSTED, AwsError, NoAccess
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, Lookup
from workers.providers.aws.limits import AwsLimits
from workers.providers.aws.model import AwsClaim, AwsClient, AwsClients, AwsResource, CallScope
from workers.providers.aws.protection import protection_reason, retention_reason
from workers.providers.aws.rechecks import ConsentRechecks

POLICY_FILE: Final = "deploy/aws/iam-policy.json"
NOT_OWNED_HINT: Final = "it goes once it is its owner's again; `knell held drop` releases the object without it"
ABANDON_HINT: Final = "`knell jobs abandon` releases the object without it"

Prepared = AwsAttempt | Verdict | Exception
"""A job after the reads for its batch: the attempt to make, or the verdict if none is needed."""


@dataclass(frozen=True)
class RemovalContext:
    """What the handlers of all kinds share."""

    clients: AwsClients
    settings: AwsAccess
    claims: ClaimRegistry
    limits: AwsLimits
    rechecks: ConsentRechecks


class PreparedBatch(NamedTuple):
    """Results by job id, and the claims, as planned, of the jobs that have one."""

    results: dict[str, Prepared]
    claims: dict[str, JudgedClaim]


class ClaimedJob(NamedTuple):
    """A job with its claim, who judges that, and the client for its calls."""

    job: Job
    claim: AwsClaim
    judge: ClaimJudge[Any]
    client: AwsClient


class BatchReader:
    def __init__(self, kind: AwsKind, context: RemovalContext) -> None:
        self._kind, self._context = kind, context

    async def prepare(self, batch: Batch, tokens: BatchTokens) -> PreparedBatch:
        """Jobs of one lane may belong to several owners and identities; each identity reads for itself."""
        place, _, operation = batch.lane.rpartition("/")
        prepared: dict[str, Prepared] = {}
        claims: dict[str, JudgedClaim] = {}
        for job in batch.jobs:
            claim = self._context.claims.decode(job.data, place)
            if isinstance(claim, JudgedClaim):
                claims[job.id] = claim
            else:
                prepared[job.id] = claim
        clients = await self._clients_by_scope((one.claim for one in claims.values()), tokens)
        groups: dict[tuple[str, str], list[ClaimedJob]] = {}
        for job in batch.jobs:
            if (found := claims.get(job.id)) is not None:
                scope = found.claim.scope
                client = clients[scope, found.claim.account]
                if isinstance(client, MeteredClient):
                    # Once its use from a namespace is permitted, an identity can read for jobs of every namespace.
                    group = groups.setdefault((scope.source, scope.identity), [])
                    group.append(ClaimedJob(job, found.claim, found.judge, client))
                else:
                    prepared[job.id] = client
        for some in await asyncio.gather(*(self._read(batch, operation, group) for group in groups.values())):
            prepared |= some
        return PreparedBatch(prepared, claims)

    async def _clients_by_scope(
        self, claims: Iterable[AwsClaim], tokens: BatchTokens
    ) -> dict[tuple[CallScope, str], MeteredClient | Verdict | Exception]:
        clients, limits = self._context.clients, self._context.limits

        async def connect(scope: CallScope, account: str) -> MeteredClient | Verdict | Exception:
            beyond = partial(clients.client, scope, account=account, paced=True)
            try:
                return MeteredClient(await clients.client(scope, account=account), tokens, beyond, limits)
            except (AwsError, NoAccess) as error:
                return verdict_for(error)

        wanted = list(dict.fromkeys((claim.scope, claim.account) for claim in claims))
        return dict(zip(wanted, await asyncio.gather(*(connect(*one) for one in wanted)), strict=True))

    # ---- reading

    async def _read(self, batch: Batch, operation: str, jobs: Sequence[ClaimedJob]) -> dict[str, Prepared]:
        prepared: dict[str, Prepared] = {}
        began = evidence_age.now()
        try:
            ids = sorted({one.job.target for one in jobs})
            found = await self._read_resources(jobs[0].client, operation, ids)
            prepared = {one.job.id: self._judge(one, found, operation, batch) for one in jobs}
            for one in jobs:
                if isinstance(attempt := prepared[one.job.id], AwsAttempt):
                    prepared[one.job.id] = replace(attempt, read=began, reread=self._reread(batch, operation, one))
            attempts = [attempt for attempt in prepared.values() if isinstance(attempt, AwsAttempt)]
            look = self._lookup(operation)
            if look is not None and attempts:
                looked_up = await look(attempts)
                prepared |= {attempt.job.id: replace(attempt, looked_up=looked_up) for attempt in attempts}
        except (AwsError, NoAccess) as error:
            # Verdicts that are known already do not depend on the read that failed.
            unprepared = [one.job.id for one in jobs if isinstance(prepared.get(one.job.id), AwsAttempt | None)]
            prepared |= dict.fromkeys(unprepared, verdict_for(error))
        return prepared

    def _reread(self, batch: Batch, operation: str, claimed: ClaimedJob) -> Callable[[], Awaitable[Prepared]] | None:
        """Repeats the reads for one job. A step that does not check ownership deletes nothing and needs no second
        read."""
        step = self._kind.steps.get(operation)
        return partial(self._alone, batch, operation, claimed) if step is None or step.checks_ownership else None

    async def _alone(self, batch: Batch, operation: str, claimed: ClaimedJob) -> Prepared:
        return (await self._read(batch, operation, [claimed]))[claimed.job.id]

    async def _read_resources(self, client: AwsClient, operation: str, ids: Sequence[str]) -> dict[str, AwsResource]:
        step = self._kind.steps.get(operation)
        if step is not None and not step.checks_ownership:
            return {one: AwsResource(kind=self._kind.name, id=one, tags={}) for one in ids}
        if operation == self._kind.check_operation and self._kind.exists is not None:
            return await self._kind.exists(client, ids)
        return await self._kind.read(client, ids)

    def _lookup(self, operation: str) -> Lookup | None:
        step = self._kind.steps.get(operation)
        if step is not None:
            return step.lookup
        return self._kind.lookup if operation == self._kind.delete_operation else None

    # ---- judging

    def _judge(self, claimed: ClaimedJob, found: dict[str, AwsResource], operation: str, batch: Batch) -> Prepared:
        kind, (job, claim, judge, client) = self._kind, claimed
        one = found.get(job.target)
        if one is None:
            return Gone()
        latest = judge.latest(job.deletion, claim)
        attempt = AwsAttempt(job, latest, judge, one, client, batch, self._context.settings, resume=job.resume)
        step = kind.steps.get(operation)
        if step is not None and not step.checks_ownership:
            return attempt
        if one.state in kind.absent_states:
            return Gone(f"it is {one.state}")
        if kind.incarnation is not None and job.resume and kind.incarnation(one) != job.resume:
            return Gone("it is gone, and another one has its name by now")
        if operation == kind.check_operation:
            if one.state in kind.deleting_states:
                return check_later(attempt, kind, f"it is {one.state}", job.resume)
            return Pending(
                timedelta(0), "it is still there", lane=f"{claim.place}/{kind.delete_operation}", resume=job.resume
            )
        reason = judge.owns(claim, one)
        if reason is not None:
            # It was the owner's when it was planned, or could not be read then: an operator has to decide.
            return Refused(f"{reason}; {NOT_OWNED_HINT}")
        if one.state in kind.deleting_states:
            return check_later(attempt, kind, f"it is {one.state}")
        if kept := retention_reason(one):
            return Left(f"left where it is: {kept}")
        if kept := protection_reason(one):
            return Refused(f"{kept}; {ABANDON_HINT}")
        return attempt


def check_later(attempt: AwsAttempt, kind: AwsKind, detail: str, resume: str = "") -> Pending:
    """Schedules the check for absence, aligned with the checks of other resources."""
    return attempt.move_to(
        kind.check_operation, detail, after=aligned_delay(attempt.settings.check_after, 0.5), resume=resume
    )


def verdict_for(error: AwsError | NoAccess) -> Verdict | Exception:
    """Verdict for the jobs that the error stopped; other errors count as a failed attempt."""
    if isinstance(error, NoAccess):
        return Blocked(str(error), person=True) if error.again else Refused(str(error))
    match error.what:
        case "throttled":
            return Throttled(error.after, str(error), unasked=error.code == BUDGET_EXHAUSTED)
        case "denied":
            return Refused(f"{error.action} is denied ({error.code}); allow it, as {POLICY_FILE} does")
        case "depends":
            return Blocked(str(error))
        case "protected":
            return Refused(f"it is protected: {error}")
        case _:
            return error.with_traceback(None)
