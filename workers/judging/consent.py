"""Consent check right before a destructive call: is the object still being deleted, still ours, and does policy still
say delete? Jobs of a deletion that ask at the same time share one check; later ones get a new check. Deletions do not
wait for one another."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import msgspec
import structlog

from service.coalesced_reads import CoalescedReads
from service.contract import Hold
from service.kubernetes import ClusterError
from service.settings import PolicySettings
from workers.handlers.collector import Collector, HasObjections, ObjectFacts, ObjectRef
from workers.handlers.protocol import RECHECK_AFTER, NotCleared
from workers.handlers.status_reports import ReportStatus, StatusReport, no_report
from workers.judging.deletion_records import DeletionRecords
from workers.judging.inspection import Inspector, Objection
from workers.judging.policy_decision import policy_decision

log = structlog.get_logger(__name__)

PATIENCE = timedelta(seconds=30)
"""A cluster that does not respond must not block jobs, and the slots of a worker, for long. Each call has a shorter
timeout of its own, which begins when the call is sent."""

NO_RECORD = 5_000
"""Milliseconds until a job whose deletion has no record is tried again; by then the janitor has repaired it."""


class ConsentUnknown(Exception):
    """The object could not be read or evaluated, so nothing may be deleted; the attempt failed and is retried."""


Withdraw = Callable[[str, str], Awaitable[bool]]


class ConsentCheck:
    def __init__(
        self,
        inspector: Inspector,
        records: DeletionRecords,
        policy: PolicySettings,
        withdraw: Withdraw,
        *,
        collectors: Mapping[str, Collector] | None = None,
        report: ReportStatus = no_report,
    ) -> None:
        self._collectors = dict(collectors or {})
        self._inspector, self._records, self._policy = inspector, records, policy
        self._withdraw, self._report = withdraw, report
        self._checks = CoalescedReads.by_key(self._check)

    async def objection(self, deletion: str) -> Exception | None:
        """NotCleared or ConsentUnknown, or None if the deletion may proceed."""
        check = self._checks.ask(deletion)
        # Not awaited directly: when one job is cancelled, the check goes on for the others.
        await asyncio.wait([check])
        if check.cancelled():
            return NotCleared("the check of its object was cancelled")
        return check.result()

    async def aclose(self) -> None:
        await self._checks.aclose()

    async def _check(self, deletion: str) -> Exception | None:
        ref = await self._records.find_one(deletion)
        if ref is None:
            return NotCleared("its deletion has no record that can be read", NO_RECORD)
        if ref.withdrawn:
            return NotCleared(f"withdrawn: {ref.withdrawn}")
        return await self._inspect(ref)

    async def _inspect(self, ref: ObjectRef) -> Exception | None:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                # A collector that can object needs the whole object.
                facts = await self._inspector.inspect(ref, metadata_only=self._objecting_collector(ref.source) is None)
        except (ClusterError, TimeoutError) as error:
            detail = str(error) or f"no answer within {PATIENCE.total_seconds():g} s"
            return ConsentUnknown(f"{ref.label} can't be looked at: {type(error).__name__}: {detail}")
        try:
            return await self._decide(ref, facts)
        except Exception as error:  # noqa: BLE001  # one deletion's trouble is not that of the others in its batch
            return ConsentUnknown(f"{ref.label} can't be judged: {type(error).__name__}: {error}")

    async def _decide(self, ref: ObjectRef, facts: ObjectFacts | Objection) -> NotCleared | None:
        if isinstance(facts, Objection):
            if facts.withdrawn:
                return await self._withdraw_deletion(ref, facts.reason)
            return NotCleared(facts.reason, refused=True, waits=facts.waits, deletion=ref.deletion)
        decision = policy_decision(facts, self._policy)
        facts = msgspec.structs.replace(facts, snapshot=decision.snapshot)
        if decision.kind == "delete":
            return await self._namesake_objection(ref, facts) or await self._collector_objection(ref, facts)
        if decision.kind == "retain" and decision.mark:
            # From the object or its Namespace, not from a changed setting: the rest stays, and the object is released.
            return await self._withdraw_deletion(ref, f"retain: {decision.reason}")
        reason = f"{decision.kind}: {decision.reason}"
        return NotCleared(reason, refused=True, deletion=ref.deletion)

    def _objecting_collector(self, source: str) -> HasObjections | None:
        collector: object = self._collectors.get(self._inspector.collector_of(source))
        return collector if isinstance(collector, HasObjections) else None

    async def _collector_objection(self, ref: ObjectRef, facts: ObjectFacts) -> NotCleared | None:
        collector = self._objecting_collector(ref.source)
        if collector is None:
            return None
        async with asyncio.timeout(PATIENCE.total_seconds()):
            hold = await collector.objections(facts)
        if hold is None:
            return None
        # The reason is not on the object itself, so no watch event announces that it has passed.
        return NotCleared(hold.reason, RECHECK_AFTER, refused=True, waits=hold.waits, deletion=ref.deletion)

    async def _namesake_objection(self, ref: ObjectRef, facts: ObjectFacts) -> NotCleared | None:
        """An object of the same name may have been created since the plan. Then resources recognised by name belong to
        that one: the collector's targets, with and without the namesake, show whether there are any."""
        if not facts.namesake or ref.had_namesake:
            return None
        before = await self._targets(msgspec.structs.replace(facts, namesake=False))
        now = await self._targets(facts)
        if now is not None and now == before:
            return None
        reason = f"another {ref.label} lives by now, and what is recognised by that name may be its"
        if now is not None and not now:
            return await self._withdraw_deletion(ref, reason)
        return NotCleared(reason, refused=True, deletion=ref.deletion)

    async def _targets(self, facts: ObjectFacts) -> set[tuple[str, str, str]] | None:
        """None where the collector can't tell."""
        collector = self._collectors.get(facts.settings.collector)
        plan = await collector.collect(facts) if collector is not None else None
        if plan is None or isinstance(plan, Hold):
            return None
        return {(target.kind, target.lane, target.id) for target in plan.targets}

    async def _withdraw_deletion(self, ref: ObjectRef, why: str) -> NotCleared:
        if await self._withdraw(ref.deletion, why):
            log.warning("consent withdrawn, open jobs are cancelled", deletion=ref.deletion, reason=why)
            self._report(StatusReport(ref, "ConsentWithdrawn", f"nothing more of it is removed: {why}"))
        return NotCleared(f"withdrawn: {why}")
