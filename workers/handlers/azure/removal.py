"""Removal handler of one kind of Azure resource: reads it, checks ownership and signs of life, deletes it, and proves
its absence by a later read. Every attempt begins with a read, so repeating one after a crash is harmless."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from service.contract import Blocked, Draw, Gone, Job, Left, Pending, Refused, Verdict
from service.settings import AzureNodes, AzureSettings
from workers.handlers import evidence_age
from workers.handlers.azure.abandoned import left_with_abandoned
from workers.handlers.azure.call_meters import BatchCallMeter
from workers.handlers.azure.calls import AzureCalls
from workers.handlers.azure.consented_claims import ConsentedClaims, name_mismatch
from workers.handlers.azure.errors import AzureError, verdict_for
from workers.handlers.azure.kinds import NIC, VM, AzureKind
from workers.handlers.azure.limits import lane_draws
from workers.handlers.azure.model import (
    Accepted,
    AzureOwner,
    AzureRemovalProgress,
    AzureResource,
    AzureScope,
    CallMeter,
)
from workers.handlers.azure.node_protection import Protection
from workers.handlers.azure.ownership import older, ownership_of
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.batch_tokens import BatchTokens, ClearanceTracker
from workers.handlers.evidence_age import Outdated, clear_until, fresh_until, retry_outdated
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords
from workers.handlers.protocol import Batch, NotCleared

READ_AFTER: Final = timedelta(seconds=4)
"""When to read after an accepted delete if Azure does not say; the delay grows with every read."""

LONGEST_READ_AFTER: Final = timedelta(minutes=1)
PROTECTED_RECHECK: Final = 60_000
"""Milliseconds after which a machine that a Node protects is checked again."""

FRESH_SIGNS: Final = timedelta(seconds=30)
"""How old the reads of Node and machine may be when a delete is sent."""

REPEAT_AFTER: Final = timedelta(seconds=15)
LONGEST_REPEAT: Final = timedelta(minutes=30)
"""Delay before a delete is repeated that was accepted without effect; it doubles each time."""

GROWTH_STEPS: Final = 20
"""Delays stop growing after so many steps, so that exponents stay small."""

_owner: Final = msgspec.json.Decoder(AzureOwner)


class ProtectionCheck(Protocol):
    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        """Why a machine must stay; None if no Node protects it."""


class AzureAttempt(NamedTuple):
    """One attempt of a job, in one of the two lanes of its kind; `group` is its group in the current settings."""

    job: Job
    owner: AzureOwner
    group: AzureNodes
    calls: AzureCalls
    batch: ClearanceTracker
    progress: AzureRemovalProgress

    @property
    def where(self) -> AzureScope:
        return self.owner.where


Calling = Callable[[AzureScope, CallMeter], AzureCalls]


class AzureRemoval:
    """Handler of one kind. `calling` returns calls with a given meter; `settings` name the groups in which resources
    may be deleted now, whatever was planned earlier; `consents` is filled by the collector of the same process;
    `kept_records` has the abandoned jobs."""

    def __init__(
        self,
        kind: AzureKind,
        calling: Calling,
        nodes: ProtectionCheck,
        settings: AzureSettings,
        consents: ConsentedClaims,
        kept_records: KeptRecords | None = None,
    ) -> None:
        self.kind, self._settings, self._consents = kind.name, settings, consents
        self._kept_records = kept_records or NoKeptRecords()
        self._kind, self._calling, self._nodes = kind, calling, nodes

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return lane_draws(lane, self._settings.reserve)

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        tokens = BatchTokens(batch, self.draws(batch.lane) or (), len(batch.jobs))
        attempts, rest = _AzureBatchAttempts(self, tokens), {job.id for job in batch.jobs}
        try:
            async for job, verdict in BatchAdapter(attempts).attempt(batch):
                rest.discard(job.id)
                if isinstance(verdict, NotCleared) and job.id not in attempts.cleared:
                    tokens.handed_back()
                yield job, verdict
        except asyncio.CancelledError:
            # The runtime hands back jobs without a verdict, and returns their tokens, except for cleared jobs, whose
            # calls may have been made.
            for _ in rest - attempts.cleared:
                tokens.handed_back()
            raise
        finally:
            tokens.give_back()

    async def attempt_job(self, job: Job, batch: ClearanceTracker, tokens: BatchTokens) -> Verdict:
        owner = _owner.decode(job.data)
        operation = batch.lane.rpartition("/")[2]
        if owner.where.lane(operation) != batch.lane:
            raise ValueError(f"it belongs to lane {owner.where.lane(operation)}, but was taken from lane {batch.lane}")
        if (fault := name_mismatch(job, owner.claim)) is not None:
            return Refused(fault)
        group = self._group(owner)
        if group is None:
            return Refused(
                f"azure.nodes does not name group {owner.where.group} of subscription {owner.where.subscription} for "
                f"cluster {owner.cluster} and source {owner.source} any more, so nothing there is touched; name it "
                f"again, or give it up by `knell jobs abandon`"
            )
        calls = self._calling(owner.where, BatchCallMeter(tokens))
        attempt = AzureAttempt(job, owner, group, calls, batch, AzureRemovalProgress.read(job.resume, owner.judged))
        try:
            if operation == self._kind.removing:
                return await self._remove(attempt)
            if self._kind is NIC and operation == VM.removing:
                return await self._remove_machine(attempt)
            return await self._read_first(attempt)
        except Outdated as outdated:
            return retry_outdated(outdated)
        except AzureError as error:
            return verdict_for(error, attempt.where)

    def _group(self, owner: AzureOwner) -> AzureNodes | None:
        places = self._settings.nodes.get(owner.source, ())
        here = (one for one in places if one.describes(owner.where.subscription, owner.where.group))
        return next((one for one in here if one.cluster == owner.cluster), None)

    # ---- reading

    async def _read_first(self, attempt: AzureAttempt) -> Verdict:
        """Reads only, deletes nothing. Most resources are already gone, removed by Karpenter."""
        found = await attempt.calls.read(self._kind, attempt.job.target)
        if found is None:
            return Gone(absent=not attempt.progress.guid)
        if (objection := self._evaluate(attempt, self._kind, found, attempt.progress.guid)) is not None:
            return objection
        progress = attempt.progress
        if found.going:
            return self._read_later(
                attempt, progress._replace(guid=found.guid, looks=progress.looks + 1), "it is being deleted"
            )
        wait = timedelta(0)
        if progress.deletes > 1:
            wait = min(LONGEST_REPEAT, REPEAT_AFTER * 2 ** min(GROWTH_STEPS, progress.deletes - 2))
        text = f"it is there ({found.state})"
        if progress.deletes:
            text += f", although its deletion was accepted {progress.deletes} times"
        after = str(progress._replace(guid=found.guid, looks=0))
        return Pending(wait, text, lane=attempt.where.lane(self._kind.removing), resume=after)

    def _evaluate(
        self, attempt: AzureAttempt, kind: AzureKind, found: AzureResource | None, guid: str
    ) -> Verdict | None:
        """Verdict that follows from the resource itself; None if it is ours, and the same one that was checked
        before."""
        if found is None:
            return Gone()
        if not found.guid:
            raise ValueError(f"Azure does not say which {kind.type} this is")
        if guid and found.guid != guid:
            return Gone(f"it is gone, and another one has its name by now ({found.guid})")
        ownership = ownership_of(found.tags, attempt.group.cluster, attempt.group.tags)
        match ownership.kind:
            case "left":
                return Left(f"{found.name} is left alone: {ownership.reason}")
            case "kept" | "untagged":
                return Refused(f"{found.name}: {ownership.reason}")
            case "ours" if spared := kind.spared(found):
                return Refused(f"{found.name}: {spared}")
            case "ours" if not self._settings.accept_older and (why := older(found, attempt.owner)):
                return Refused(f"{found.name}: {why}")
        return None

    def _read_later(
        self, attempt: AzureAttempt, progress: AzureRemovalProgress, text: str, after: timedelta | None = None
    ) -> Pending:
        """Back to the read lane, where its absence is proven."""
        wait = (
            after
            if after is not None
            else min(LONGEST_READ_AFTER, READ_AFTER * 1.5 ** min(GROWTH_STEPS, max(0, progress.looks - 1)))
        )
        return Pending(wait, text, lane=attempt.where.lane(self._kind.reading), resume=str(progress))

    # ---- removing

    async def _remove(self, attempt: AzureAttempt) -> Verdict:
        started = evidence_age.now()
        objection = await self._check_signs_of_life(attempt)
        if objection is not None:
            return objection
        found = await attempt.calls.read(self._kind, attempt.job.target)
        objection = self._evaluate(attempt, self._kind, found, attempt.progress.guid)
        if objection is None and found is not None:
            objection = await self._check_not_in_use(attempt, found)
        if objection is not None or found is None:
            return objection or Gone()
        await self._clear(attempt, started)
        accepted = await attempt.calls.delete(self._kind, attempt.job.target)
        return self._after_delete(attempt, accepted, attempt.progress._replace(guid=found.guid))

    async def _clear(self, attempt: AzureAttempt, started: float) -> None:
        """Called after reading Node and machine first, then the resource; consent comes last. Whoever creates a
        resource with this name has created its NodeClaim before, which consent would see, so a slow read does no
        harm."""
        until = min(fresh_until(evidence_age.now()), started + FRESH_SIGNS.total_seconds())
        await clear_until(attempt.batch, attempt.job, until)
        self._consents.check(attempt.job, attempt.owner)

    async def _remove_machine(self, attempt: AzureAttempt) -> Verdict:
        """Deletes the machine of an interface whose NodeClaim is gone, if the machine appeared after the machines'
        stage."""
        started, back = evidence_age.now(), attempt.progress._replace(machine="")
        await self._check_node(attempt)
        machine = await attempt.calls.read(VM, attempt.job.target)
        if machine is not None and (left := await self._left_with_machine(attempt)) is not None:
            return left
        objection = self._evaluate(attempt, VM, machine, attempt.progress.machine)
        if isinstance(objection, Gone) or machine is None:
            return Pending(timedelta(0), "its machine is gone", lane=attempt.where.lane(NIC.removing), resume=str(back))
        if objection is not None or machine.going:
            return objection or Blocked(f"virtual machine {machine.name}, which is being deleted")
        await self._clear(attempt, started)
        accepted = await attempt.calls.delete(VM, attempt.job.target)
        return self._read_later(
            attempt, back, "the deletion of its machine was accepted", accepted.after or timedelta(0)
        )

    def _after_delete(self, attempt: AzureAttempt, accepted: Accepted, progress: AzureRemovalProgress) -> Verdict:
        progress = progress._replace(deletes=progress.deletes + 1, looks=0)
        if accepted.gone:
            # Only a read proves absence. If reads contradict this again and again, deletes are repeated less often.
            return self._read_later(attempt, progress, "said to be gone", timedelta(0))
        return self._read_later(attempt, progress, "deletion accepted", accepted.after)

    async def _check_signs_of_life(self, attempt: AzureAttempt) -> Verdict | None:
        """Reads the Node of a machine, or the machine of an interface."""
        if self._kind is VM:
            await self._check_node(attempt)
        if self._kind is not NIC:
            return None
        machine = await attempt.calls.read(VM, attempt.job.target)
        if machine is None:
            return None
        if (left := await self._left_with_machine(attempt)) is not None:
            return left
        text = f"virtual machine {machine.name} ({machine.state}), which it belongs to"
        ours = self._evaluate(attempt, VM, machine, "") is None and not machine.going
        if attempt.owner.judged or not ours:
            # The interface is deleted with its machine. If a sweep found the interface, it will find the machine, too.
            return Blocked(text)
        # Launched while its NodeClaim was deleted: it gets the usual grace period, in which its Node may become Ready.
        after, lane = str(attempt.progress._replace(machine=machine.guid)), attempt.where.lane(VM.removing)
        return Pending(self._settings.grace, f"{text}, goes first", lane=lane, resume=after)

    async def _left_with_machine(self, attempt: AzureAttempt) -> Left | None:
        return await left_with_abandoned(
            self._kept_records, attempt.job, attempt.where, attempt.where.id(VM.type, attempt.job.target)
        )

    async def _check_node(self, attempt: AzureAttempt) -> None:
        name = attempt.job.target
        # Karpenter's Nodes have the name of their machine, in lower case.
        found = await self._nodes.protects(attempt.owner.source, attempt.where.id(VM.type, name), name.lower())
        if found is not None:
            text = f"{name} stays: {found.why}"
            raise NotCleared(text, PROTECTED_RECHECK, refused=True, waits=found.waits, deletion=attempt.job.deletion)

    async def _check_not_in_use(self, attempt: AzureAttempt, found: AzureResource) -> Verdict | None:
        if found.going:
            progress = attempt.progress._replace(guid=found.guid, looks=attempt.progress.looks + 1)
            return self._read_later(attempt, progress, "it is being deleted")
        if not found.used_by:
            return None
        return await left_with_abandoned(self._kept_records, attempt.job, attempt.where, found.used_by) or Blocked(
            found.used_by
        )


class _AzureBatchAttempts:
    """Runs the jobs of one batch, and records which were cleared."""

    def __init__(self, removal: AzureRemoval, tokens: BatchTokens) -> None:
        self.kind = removal.kind
        self.cleared = set[str]()
        self._removal, self._tokens = removal, tokens

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._removal.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        cleared = ClearanceTracker(batch)
        try:
            return await self._removal.attempt_job(job, cleared, self._tokens)
        finally:
            if cleared.once:
                self.cleared.add(job.id)
