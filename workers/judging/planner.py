"""Planner of every declared source: inspects the object, applies policy and guard, and has the collector name targets.
It only reads. The event is a hint; the live object decides."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from service.contract import FINALLY, Event, Hold, Plan, Target
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.contract.targets import order_of
from service.engine.guard import DeletedObject, Guard
from service.kubernetes import ClusterError
from service.policy.decisions import PolicyDecision
from service.policy.guard import orphans_guard_name
from service.settings import PolicySettings
from workers.handlers.collector import NAMESAKE_REMARK, Collector, ObjectFacts, ref_of_event
from workers.handlers.status_reports import Reason, ReportStatus, StatusReport, no_report
from workers.judging.inspection import Inspector, Objection
from workers.judging.policy_decision import decision_without_dry_run, policy_decision

NAMED = 10
"""Targets that a message names; the others are only counted."""


Dropped = Callable[[Event], Awaitable[str]]
"""Why the object's resources stay: an operator dropped an earlier deletion of it. Empty if that did not happen."""


ReadAbandoned = Callable[[str], Awaitable[Abandoned]]
"""The jobs that were abandoned in earlier plans of a deletion."""


async def _never(event: Event) -> str:
    del event
    return ""


async def _nothing_abandoned(deletion: str) -> Abandoned:
    del deletion
    return NOTHING_ABANDONED


class LivePlanner:
    """`dropped` tells whether an operator dropped an earlier deletion of the object. Resources whose jobs were
    `abandoned` before the deletion was planned anew are not planned again."""

    def __init__(
        self,
        inspector: Inspector,
        policy: PolicySettings,
        guard: Guard,
        collectors: Mapping[str, Collector],
        report: ReportStatus = no_report,
        dropped: Dropped = _never,
        abandoned: ReadAbandoned = _nothing_abandoned,
    ) -> None:
        self._inspector, self._policy, self._guard = inspector, policy, guard
        self._collectors, self._report = dict(collectors), report
        self._dropped, self._abandoned = dropped, abandoned

    async def plan(self, event: Event) -> Plan | Hold:
        """If the object can't be read, the deletion is held and planned again."""
        try:
            facts = await self._inspector.inspect(
                ref_of_event(event), metadata_only=self._needs_no_text(event.source), destroys=False
            )
        except ClusterError as error:
            return Hold(f"its cluster can't be asked: {type(error).__name__}: {error}", again=True)
        if isinstance(facts, Objection):
            if facts.withdrawn and event.reason == "orphan":
                # What the sweep saw is not true, or no longer: nothing to hold.
                return Plan([], facts.reason)
            # The event may be forged: no status is reported, it is only shown as held.
            return Hold(facts.reason, again=facts.again, waits=facts.waits)
        decision = policy_decision(facts, self._policy)
        facts = msgspec.structs.replace(facts, snapshot=decision.snapshot)
        if dropped := await self._dropped(event):
            # Whatever policy says now: an operator has decided, and the object would otherwise be held for ever.
            decision = PolicyDecision("retain", dropped)
        match decision.kind:
            case "delete":
                found = await self._delete(facts, decision)
            case "retain":
                found = Plan([], f"retain: {decision.reason}")
                self._report_reason(facts, "ResourcesRetained", f"what it owns outside stays: {decision.reason}")
            case "dry-run":
                found = await self._rehearse(facts, decision)
            case kind:
                found = Hold(f"{kind}: {decision.reason}", again=True)
        if isinstance(found, Hold):
            self._report_reason(facts, "CleanupWaiting" if found.waits else "CleanupHeld", found.reason)
        return found

    def _needs_no_text(self, source: str) -> bool:
        collector = self._collectors.get(self._inspector.collector_of(source))
        return collector is not None and collector.metadata_only

    async def _delete(self, facts: ObjectFacts, decision: PolicyDecision) -> Plan | Hold:
        ref = facts.ref
        guarded = orphans_guard_name(ref.source) if ref.orphan else ref.source
        (admission,) = await self._guard.admit(
            guarded, [DeletedObject(ref.uid, facts.going_since)], facts.settings.guard
        )
        if not admission.admitted:
            return Hold(admission.reason, again=True)
        plan = await self._collect(facts)
        if isinstance(plan, Hold):
            return plan
        targets, remark = list(plan.targets), f"; {plan.why}" if plan.why else ""
        self._report_reason(facts, "CleanupStarted", f"{counted(targets)}{remark}")
        return Plan(targets, f"delete: {decision.reason}{remark}{NAMESAKE_REMARK if facts.namesake else ''}")

    async def _rehearse(self, facts: ObjectFacts, decision: PolicyDecision) -> Hold:
        """Plans and records everything, deletes nothing. The guard is not asked, because it would count the object."""
        would = decision_without_dry_run(facts, self._policy)
        if would.kind != "delete":
            return Hold(f"dry-run: would remove nothing, for {would.reason}; {decision.reason}", again=True)
        plan = await self._collect(facts)
        if isinstance(plan, Hold):
            return Hold(f"dry-run: {plan.reason}", again=True, after=plan.after)
        remark = f"; {plan.why}" if plan.why else ""
        return Hold(f"dry-run: would remove {listed(list(plan.targets))}{remark}; {decision.reason}", again=True)

    async def _collect(self, facts: ObjectFacts) -> Plan | Hold:
        collector = self._collectors.get(facts.settings.collector)
        if collector is None:
            known = ", ".join(sorted(self._collectors)) or "none"
            return Hold(f"no collector {facts.settings.collector!r} in this process (there is: {known})", again=True)
        plan = await collector.collect(facts)
        # Read last: until the new plan is written, nothing more of the deletion can be abandoned.
        return plan if isinstance(plan, Hold) else _spare(plan, await self._abandoned(facts.ref.deletion))

    def _report_reason(self, facts: ObjectFacts, reason: Reason, message: str) -> None:
        self._report(StatusReport(facts.ref, reason, message, facts.live))


def _spare(plan: Plan, abandoned: Abandoned) -> Plan | Hold:
    """The plan without resources that an operator abandoned in an earlier plan of the deletion."""
    if abandoned.unknown:
        return Hold(
            f"{abandoned.unknown} of its jobs were abandoned in an earlier plan, and their records can't be read, so "
            f"that any resource may be one that is to stay; `knell held drop` releases the object and leaves all",
            again=True,
        )
    if not abandoned.jobs:
        return plan
    targets = list(plan.targets)
    rest = not_abandoned(targets, abandoned)
    remark = f"{len(targets) - len(rest)} left, whose jobs were abandoned" if len(rest) < len(targets) else ""
    return Plan(rest, "; ".join(filter(None, (plan.why, remark))))


def not_abandoned(targets: Sequence[Target], abandoned: Abandoned) -> list[Target]:
    """Targets without an abandoned job of their kind and id. Where the job names an incarnation, a target of another
    one, or of one that is not known yet, remains: the attempt reads it, and leaves the one that was abandoned. Where
    several targets have that kind and id, in several places, the claim tells which of them was abandoned, if it is
    still the same."""
    claims: dict[tuple[str, str], set[str]] = {}
    for target in targets:
        claims.setdefault((target.kind, target.id), set()).add(target.data)
    stays = set[tuple[str, str, str, str]]()
    for job in abandoned.jobs:
        same = claims.get((job.kind, job.target), set())
        stays |= {(job.kind, job.target, job.incarnation, data) for data in (same & {job.data} or same)}
    return [
        one
        for one in targets
        if stays.isdisjoint((one.kind, one.id, incarnation, one.data) for incarnation in ("", one.incarnation))
    ]


def counted(targets: list[Target]) -> str:
    """Number of targets by kind, without the final check, which is no resource. Targets that were not seen yet are
    listed separately."""
    seen = Counter(target.kind for target in targets if target.chain != FINALLY and target.seen)
    named = Counter(target.kind for target in targets if target.chain != FINALLY and not target.seen)
    parts = [f"removing {_resources(seen.total())} ({_kinds(seen)})"] if seen else []
    if named:
        parts.append(f"looking for what is left of it ({_kinds(named)})")
    return "; ".join(parts) or "removing nothing: it owns nothing outside"


def _kinds(kinds: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def listed(targets: list[Target]) -> str:
    """The first targets by name, in the order of removal; says so if not all of them were seen."""
    ordered = sorted((target for target in targets if target.chain != FINALLY), key=order_of)
    if not ordered:
        return "nothing: it owns nothing outside"
    if not all(target.seen for target in ordered):
        return f"what is there of {_listed(ordered)}"
    return _listed(ordered)


def _listed(ordered: list[Target]) -> str:
    named = ", ".join(f"{target.kind} {target.id}" for target in ordered[:NAMED])
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return f"{_resources(len(ordered))}: {named}{more}"


def _resources(number: int) -> str:
    return "1 resource" if number == 1 else f"{number} resources"
