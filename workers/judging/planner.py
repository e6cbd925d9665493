"""The planner of every declared source: an event is a hint, what is found at the object decides.
Only reads happen here; what may go is let through by the guard, and then the source's collector names the targets."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from service.contract import FINALLY, Event, Hold, Plan, Target
from service.contract.targets import order_of
from service.engine.guard import Going, Guard
from service.kubernetes import ClusterError
from service.policy.decisions import Decision
from service.policy.guard import orphans_of
from service.settings import PolicySettings
from workers.handlers.notes import Note, Reason, Tell, silent
from workers.handlers.objects import BESIDE, Collector, Facts, about_event
from workers.judging.inspection import Inspector, Objection
from workers.judging.weighing import meant, weigh

NAMED = 10
"""Targets that a sentence names; of the others it says how many there are."""


Dropped = Callable[[Event], Awaitable[str]]
"""Why nothing of an object is to go: a person dropped its deletion; empty where that did not happen."""


async def _never(event: Event) -> str:
    del event
    return ""


class LivePlanner:
    """`dropped` knows what people said of the object before."""

    def __init__(
        self,
        inspector: Inspector,
        policy: PolicySettings,
        guard: Guard,
        collectors: Mapping[str, Collector],
        tell: Tell = silent,
        dropped: Dropped = _never,
    ) -> None:
        self._inspector, self._policy, self._guard = inspector, policy, guard
        self._collectors, self._tell, self._dropped = dict(collectors), tell, dropped

    async def plan(self, event: Event) -> Plan | Hold:
        """What keeps us from finding out is no finding: it is held, and looked at again."""
        try:
            facts = await self._inspector.look(
                about_event(event), metadata_only=self._needs_no_text(event.source), destroys=False
            )
        except ClusterError as error:
            return Hold(f"its cluster can't be asked: {type(error).__name__}: {error}", again=True)
        if isinstance(facts, Objection):
            if facts.withdrawn and event.reason == "orphan":
                # What the sweep saw is not so, or not any more: nobody need look at it.
                return Plan([], facts.reason)
            # The event is not believed: nobody is told of it but who looks at what is held.
            return Hold(facts.reason, again=facts.again, waits=facts.waits)
        decision = weigh(facts, self._policy)
        if dropped := await self._dropped(event):
            # Whatever policy says by now: a person has decided, and the object would else be held for ever.
            decision = Decision("retain", dropped)
        match decision.kind:
            case "delete":
                found = await self._delete(facts, decision)
            case "retain":
                found = Plan([], f"retain: {decision.reason}")
                self._say(facts, "ResourcesRetained", f"what it owns outside stays: {decision.reason}")
            case "dry-run":
                found = await self._rehearse(facts, decision)
            case kind:
                found = Hold(f"{kind}: {decision.reason}", again=True)
        if isinstance(found, Hold):
            self._say(facts, "CleanupWaiting" if found.waits else "CleanupHeld", found.reason)
        return found

    def _needs_no_text(self, source: str) -> bool:
        collector = self._collectors.get(self._inspector.collector_of(source))
        return collector is not None and collector.metadata_only

    async def _delete(self, facts: Facts, decision: Decision) -> Plan | Hold:
        about = facts.about
        guarded = orphans_of(about.source) if about.orphan else about.source
        (admission,) = await self._guard.admit(guarded, [Going(about.uid, facts.going_since)], facts.settings.guard)
        if not admission.admitted:
            return Hold(admission.reason, again=True)
        plan = await self._collect(facts)
        if isinstance(plan, Hold):
            return plan
        targets, remark = list(plan.targets), f"; {plan.why}" if plan.why else ""
        self._say(facts, "CleanupStarted", f"{counted(targets)}{remark}")
        return Plan(targets, f"delete: {decision.reason}{remark}{BESIDE if facts.namesake else ''}")

    async def _rehearse(self, facts: Facts, decision: Decision) -> Hold:
        """Everything is planned and recorded, nothing is destroyed; the guard is not asked, for it would count."""
        would = meant(facts, self._policy)
        if would.kind != "delete":
            return Hold(f"dry-run: would remove nothing, for {would.reason}; {decision.reason}", again=True)
        plan = await self._collect(facts)
        if isinstance(plan, Hold):
            return Hold(f"dry-run: {plan.reason}", again=True, after=plan.after)
        remark = f"; {plan.why}" if plan.why else ""
        return Hold(f"dry-run: would remove {listed(list(plan.targets))}{remark}; {decision.reason}", again=True)

    async def _collect(self, facts: Facts) -> Plan | Hold:
        collector = self._collectors.get(facts.settings.collector)
        if collector is None:
            known = ", ".join(sorted(self._collectors)) or "none"
            return Hold(f"no collector {facts.settings.collector!r} in this process (there is: {known})", again=True)
        return await collector.collect(facts)

    def _say(self, facts: Facts, reason: Reason, message: str) -> None:
        self._tell(Note(facts.about, reason, message, facts.live))


def counted(targets: list[Target]) -> str:
    """How many of which kind; what comes last of all is a look at what is left, and no resource. What a plan only names
    is not counted before it was seen."""
    seen = Counter(target.kind for target in targets if target.chain != FINALLY and target.seen)
    named = Counter(target.kind for target in targets if target.chain != FINALLY and not target.seen)
    parts = [f"removing {_resources(seen.total())} ({_kinds(seen)})"] if seen else []
    if named:
        parts.append(f"looking for what is left of it ({_kinds(named)})")
    return "; ".join(parts) or "removing nothing: it owns nothing outside"


def _kinds(kinds: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def listed(targets: list[Target]) -> str:
    """The first few by name, as they would be removed; of those that were not seen it is said."""
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
