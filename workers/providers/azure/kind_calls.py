"""Calls of one kind on Azure, as the removal asks for them: one request per resource, signs of life before it, and what
it is attached to. A resource with a host, as an interface with its machine, waits until that is gone; if the claim is
on the host, too, the job deletes it first (`host_removal.py`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract import Blocked, Draw, Job, Left, Pending, Refused, Verdict
from workers.handlers import evidence_age
from workers.handlers.protocol import Batch
from workers.providers.azure.call_meters import BatchCallMeter
from workers.providers.azure.calls import AzureCalls
from workers.providers.azure.claims import AzureClaim, ClaimJudges, Consents, NotJudged
from workers.providers.azure.errors import AzureError, verdict_for
from workers.providers.azure.kinds import AzureKind
from workers.providers.azure.limits import LaneLimits
from workers.providers.azure.model import AzureResource, AzureScope, CallMeter
from workers.providers.azure.protection import kept_by_tag
from workers.removal import (
    GROWTH_STEPS,
    Accepted,
    Attempt,
    ClaimedJob,
    Connected,
    Evidence,
    RemovalProgress,
    Step,
    repeat_delay,
)

READ_AFTER: Final = timedelta(seconds=4)
"""When to read after an accepted delete if Azure does not say; the delay grows with every read."""

LONGEST_READ_AFTER: Final = timedelta(minutes=1)

FRESH_SIGNS: Final = timedelta(seconds=30)
"""How old the signs of life may be when a delete is sent."""


Calling = Callable[[AzureScope, CallMeter], AzureCalls]


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAttempt(Attempt[AzureClaim, AzureResource, AzureCalls]):
    """One attempt at one job on Azure. `resume` is the text of a HostProgress, if the host is to be deleted first."""


class HostProgress(NamedTuple):
    """What the attempts of a job hand on to each other about its host: which one it is, and how many deletes of it were
    accepted."""

    guid: str = ""
    deletes: int = 0

    @classmethod
    def read(cls, text: str) -> "HostProgress":
        guid, _, deletes = text.partition("/")
        return cls(guid, int(deletes) if deletes.isdecimal() else 0)

    def __str__(self) -> str:
        return f"{self.guid}/{self.deletes}" if self.deletes else self.guid


class AzureKindCalls:
    """Implements the KindCalls of the removal. `calling` returns calls with a given meter; `judges` are those of the
    collectors of this process, which also fill `consents`."""

    errors = (AzureError,)
    looks_first = True
    incarnation_may_change = False
    steps: Mapping[str, Step[AzureAttempt]] = {}

    def __init__(
        self, kind: AzureKind, calling: Calling, limits: LaneLimits, judges: ClaimJudges, consents: Consents
    ) -> None:
        self.kind, self.check_operation, self.delete_operation = kind.name, kind.reading, kind.removing
        self._kind, self._calling, self._limits = kind, calling, limits
        self._judges, self._consents = judges, consents

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._limits.draws(lane)

    # ---- claims

    def claimed(self, job: Job, lane: str) -> ClaimedJob | Verdict | Exception:
        try:
            claim, judge = self._judges.read(job.data)
        except NotJudged as reason:
            return Refused(str(reason))
        except msgspec.DecodeError as error:
            return error
        operation = lane.rpartition("/")[2]
        if claim.where.lane(operation) != lane:
            return ValueError(f"it belongs to lane {claim.where.lane(operation)}, but was taken from lane {lane}")
        if operation not in (self.check_operation, self.delete_operation):
            return ValueError(f"lane {lane} is none of kind {self.kind}, so nothing is reserved in it for its calls")
        fault = judge.objection(claim, job)
        if fault is None and claim.where not in judge.scopes:
            fault = (
                f"{judge.setting} names another region or identity for group {claim.where.group} than the claim, so "
                f"nothing is touched: set it back, or give this up by `knell jobs abandon`"
            )
        return Refused(fault) if fault is not None else ClaimedJob(job, claim, judge)

    def expected(self, claimed: ClaimedJob) -> str:
        judged: str = claimed.claim.judged
        return judged

    def confirm(self, claimed: ClaimedJob) -> None:
        self._consents.check(*claimed)

    def should_recheck(self, job: Job, found: object) -> bool:
        """Never: a job here gets its consent when nothing else is in the way."""
        del job, found
        return False

    # ---- reading

    async def connect(self, claimed: Sequence[ClaimedJob], batch: Batch) -> Connected:
        """Azure reads one resource per call, so each job is a group of its own."""
        meter = BatchCallMeter(batch.meter)
        clients = {one.job.id: self._calling(one.claim.where, meter) for one in claimed}
        return Connected([[one] for one in claimed], clients, {})

    async def read(self, operation: str, client: AzureCalls, claimed: Sequence[ClaimedJob]) -> Evidence:
        """Signs of life first, then the host, then the resource. Whoever creates a resource for a new owner has created
        that owner before, which consent would see, so a slow read does no harm."""
        (one,) = claimed
        name, started = one.job.target, evidence_age.now()
        if operation == self.delete_operation:
            await one.judge.check_alive(one.claim, self._kind, one.job)
            if self._kind.host is not None and (waits := await self._check_host(one, client, self._kind.host)):
                return Evidence({}, started, {one.job.id: waits})
        found = await client.read(self._kind, name)
        expires = min(evidence_age.fresh_until(evidence_age.now()), started + FRESH_SIGNS.total_seconds())
        return Evidence({name: found} if found is not None else {}, expires)

    def attempt(self, claimed: ClaimedJob, resource: AzureResource, client: AzureCalls, batch: Batch) -> AzureAttempt:
        job, claim, judge = claimed
        return AzureAttempt(job=job, claim=claim, judge=judge, resource=resource, client=client, batch=batch)

    async def look_up(self, operation: str, attempts: Sequence[AzureAttempt]) -> Sequence[AzureAttempt]:
        del operation
        return attempts

    # ---- judging

    def absent(self, resource: AzureResource) -> str:
        del resource
        return ""

    def deleting(self, resource: AzureResource) -> str:
        return "it is being deleted" if resource.going else ""

    def incarnation(self, resource: AzureResource) -> str:
        return _guid(self._kind, resource)

    def owns(self, claimed: ClaimedJob, resource: AzureResource) -> Verdict | None:
        objection: Left | Refused | None = claimed.judge.owns(claimed.claim, resource)
        return objection

    def kept(self, resource: AzureResource) -> Verdict | None:
        return _kept(self._kind, resource)

    # ---- deleting

    async def obstacle(self, attempt: AzureAttempt, operation: str) -> Verdict | None:
        user = attempt.resource.used_by
        if operation != self.delete_operation or not user:
            return None
        return await attempt.judge.left_with(attempt.claim, attempt.job, user) or Blocked(user)

    async def delete(self, attempt: AzureAttempt) -> Accepted:
        return await attempt.client.delete(self._kind, attempt.job.target)

    def check_delay(self, checks: int) -> timedelta:
        return min(LONGEST_READ_AFTER, READ_AFTER * 1.5 ** min(GROWTH_STEPS, max(0, checks - 1)))

    def verdict_for(self, error: Exception, claimed: ClaimedJob | None) -> Verdict | Exception:
        if claimed is None or not isinstance(error, AzureError):
            return error
        try:
            return verdict_for(error, claimed.claim.where, claimed.judge.setting)
        except AzureError as failed:
            return failed

    # ---- the host

    async def _check_host(self, one: ClaimedJob, client: AzureCalls, host: AzureKind) -> Verdict | None:
        """Reads what the target may be attached to: it would be deleted with that."""
        job, claim, judge = one
        step = judge.host_step(claim, self._kind, job)
        found = await client.read(host, step.name) if step is not None else None
        if step is None or found is None:
            return None
        left: Left | None = await judge.left_with(claim, job, claim.where.id(host.type, step.name))
        if left is not None:
            return left
        text = f"{host.title} {found.name} ({found.state}), which it belongs to"
        if step.delay is None or found.going or self._objection(one, host, found) is not None:
            return Blocked(text)
        # Launched while its owner was deleted: it gets the usual delay, in which signs of life may appear. The same one
        # again gets more of it each time: its delete was accepted without effect.
        progress = RemovalProgress.read(job.resume, claim.judged)
        known = HostProgress.read(progress.state)
        if known.guid != found.guid:
            known = HostProgress(found.guid)
        vain = f", although its deletion was accepted {known.deletes} times" if known.deletes else ""
        return Pending(
            step.delay + repeat_delay(known.deletes), f"{text}, goes first{vain}",
            lane=claim.where.lane(host.removing), resume=str(progress._replace(state=str(known))),
        )  # fmt: skip

    def _objection(self, one: ClaimedJob, host: AzureKind, found: AzureResource) -> Verdict | None:
        _guid(host, found)
        return self.owns(one, found) or _kept(host, found)


def _guid(kind: AzureKind, found: AzureResource) -> str:
    if not found.guid:
        raise ValueError(f"Azure does not say which {kind.type} this is")
    return found.guid


def _kept(kind: AzureKind, found: AzureResource) -> Verdict | None:
    if (kept := kept_by_tag(found)) is not None:
        return kept
    spared = kind.spared(found)
    return Refused(f"{found.name}: {spared}") if spared else None
