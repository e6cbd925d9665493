"""Reader that prepares the jobs of a batch: resolves identities, reads the resources and checks ownership. One read
serves all jobs of an identity; each job is judged by itself and keeps the client of its own cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.contract import Blocked, Gone, Job, Left, Pending, Refused, Throttled, Verdict
from service.settings.aws import AwsSettings
from workers.handlers import evidence_age
from workers.handlers.aws.capa.latest_objects import LatestObjects
from workers.handlers.aws.capa.ownership import ownership_objection, protection_reason, retention_reason
from workers.handlers.aws.client.metered_client import MeteredClient
from workers.handlers.aws.due_times import aligned_delay
from workers.handlers.aws.errors import BUDGET_EXHAUSTED, AwsError, NoAccess
from workers.handlers.aws.model import (
    AwsAttempt,
    AwsClient,
    AwsClients,
    AwsKind,
    AwsResource,
    CallScope,
    CapaCluster,
    Lookup,
)
from workers.handlers.batch_tokens import BatchTokens
from workers.handlers.protocol import Batch

POLICY_FILE: Final = "deploy/aws/iam-policy.json"
NOT_OWNED_HINT: Final = "it goes once it is the cluster's again; `knell held drop` releases the object without it"
ABANDON_HINT: Final = "`knell jobs abandon` releases the object without it"
_owner: Final = msgspec.json.Decoder(CapaCluster)

Prepared = AwsAttempt | Verdict | Exception
"""A job after the reads for its batch: the attempt to make, or the verdict if none is needed."""


class OwnedJob(NamedTuple):
    """A job with its owner and the client for its calls."""

    job: Job
    owner: CapaCluster
    client: AwsClient


class BatchReader:
    def __init__(
        self, kind: AwsKind, clients: AwsClients, settings: AwsSettings, latest_objects: LatestObjects
    ) -> None:
        self._kind, self._clients, self._settings, self._latest_objects = kind, clients, settings, latest_objects

    async def prepare(self, batch: Batch, tokens: BatchTokens) -> dict[str, Prepared]:
        """Results by job id. Jobs of one lane may belong to several clusters and identities; each identity reads for
        itself."""
        place, _, operation = batch.lane.rpartition("/")
        prepared: dict[str, Prepared] = {}
        owners: dict[str, CapaCluster] = {}
        for job in batch.jobs:
            owner = _owner_of(job, place)
            if isinstance(owner, CapaCluster):
                owners[job.id] = owner
            else:
                prepared[job.id] = owner
        clients = await self._clients_by_scope(owners.values(), tokens)
        groups: dict[tuple[str, str], list[OwnedJob]] = {}
        for job in batch.jobs:
            if (found := owners.get(job.id)) is not None:
                client = clients[found.scope, found.account]
                if isinstance(client, MeteredClient):
                    # Once its use from a namespace is permitted, an identity can read for jobs of every namespace.
                    group = groups.setdefault((found.scope.source, found.scope.identity), [])
                    group.append(OwnedJob(job, found, client))
                else:
                    prepared[job.id] = client
        for some in await asyncio.gather(*(self._read(batch, operation, group) for group in groups.values())):
            prepared |= some
        return prepared

    async def _clients_by_scope(
        self, owners: Iterable[CapaCluster], tokens: BatchTokens
    ) -> dict[tuple[CallScope, str], MeteredClient | Verdict | Exception]:
        async def connect(scope: CallScope, account: str) -> MeteredClient | Verdict | Exception:
            beyond = partial(self._clients.client, scope, account=account, paced=True)
            try:
                return MeteredClient(await self._clients.client(scope, account=account), tokens, beyond)
            except (AwsError, NoAccess) as error:
                return verdict_for(error)

        wanted = list(dict.fromkeys((owner.scope, owner.account) for owner in owners))
        return dict(zip(wanted, await asyncio.gather(*(connect(*one) for one in wanted)), strict=True))

    # ---- reading

    async def _read(self, batch: Batch, operation: str, owned_jobs: Sequence[OwnedJob]) -> dict[str, Prepared]:
        prepared: dict[str, Prepared] = {}
        began = evidence_age.now()
        try:
            found = await self._read_resources(
                owned_jobs[0].client, operation, sorted({owned.job.target for owned in owned_jobs})
            )
            prepared = {owned.job.id: self._judge(owned, found, operation, batch) for owned in owned_jobs}
            for owned in owned_jobs:
                if isinstance(attempt := prepared[owned.job.id], AwsAttempt):
                    prepared[owned.job.id] = replace(attempt, read=began, reread=self._reread(batch, operation, owned))
            attempts = [attempt for attempt in prepared.values() if isinstance(attempt, AwsAttempt)]
            look = self._lookup(operation)
            if look is not None and attempts:
                looked_up = await look(attempts)
                prepared |= {attempt.job.id: replace(attempt, looked_up=looked_up) for attempt in attempts}
        except (AwsError, NoAccess) as error:
            # Verdicts that are known already do not depend on the read that failed.
            unprepared = [one.job.id for one in owned_jobs if isinstance(prepared.get(one.job.id), AwsAttempt | None)]
            prepared |= dict.fromkeys(unprepared, verdict_for(error))
        return prepared

    def _reread(self, batch: Batch, operation: str, owned: OwnedJob) -> Callable[[], Awaitable[Prepared]] | None:
        """Repeats the reads for one job. A step that does not check ownership deletes nothing and needs no second
        read."""
        step = self._kind.steps.get(operation)
        return partial(self._alone, batch, operation, owned) if step is None or step.checks_ownership else None

    async def _alone(self, batch: Batch, operation: str, owned: OwnedJob) -> Prepared:
        return (await self._read(batch, operation, [owned]))[owned.job.id]

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

    def _judge(self, owned: OwnedJob, found: dict[str, AwsResource], operation: str, batch: Batch) -> Prepared:
        kind, (job, owner, client) = self._kind, owned
        one = found.get(job.target)
        if one is None:
            return Gone()
        latest = partial(self._latest_objects.updated, job.deletion)
        attempt = AwsAttempt(job, latest(owner), one, client, batch, self._settings, resume=job.resume, latest=latest)
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
                timedelta(0), "it is still there", lane=f"{owner.place}/{kind.delete_operation}", resume=job.resume
            )
        reason = ownership_objection(one, owner, kind)
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


def _owner_of(job: Job, place: str) -> CapaCluster | Exception:
    try:
        owner = _owner.decode(job.data)
    except msgspec.DecodeError as error:
        return error
    if owner.place != place:
        return ValueError(f"its owner is of {owner.place}, and the lane of {place}")
    return owner
