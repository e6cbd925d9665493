"""Policy decision for an object that is being deleted: delete, retain or hold, with a reason.
Pure. An object that only leaves the scope is held; it is retained only if a mark on it or its Namespace says so."""

import msgspec

from service.policy.decisions import PolicyDecision
from service.policy.deletion_policy import decide_deletion_policy
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.scope import gc_switch
from service.policy.selectors import parse_selector
from service.settings import PolicySettings
from workers.handlers.collector import ObjectFacts

STAYS = "what is already going is not released by that"


def policy_decision(facts: ObjectFacts, policy: PolicySettings) -> PolicyDecision:
    """`delete`, `retain`, `dry-run`, or a kind of hold: `hold`, `protected`, `paused`."""
    known = _known(facts, policy)
    found = evaluate_policy(known)
    if found.kind == "out-of-scope":
        if found.mark:
            # From a mark on the object itself, not from its labels or a changed setting.
            return PolicyDecision("retain", found.reason, found.mark)
        return _retained(evaluate_policy(_in_scope(known))) or PolicyDecision(
            "hold", f"{found.reason}; {STAYS}", found.mark
        )
    if found.kind in ("delete", "retain", "dry-run") and (reason := _unwatched(facts)):
        return _retained(found) or PolicyDecision("hold", f"{reason}; {STAYS}")
    return found


def _retained(found: PolicyDecision) -> PolicyDecision | None:
    """Retain, if a mark on the object or its Namespace says so. A changed setting never releases an object, so that
    resources meant to be deleted are not forgotten."""
    return found if found.kind == "retain" and found.mark else None


def _in_scope(known: PolicyInput) -> PolicyInput:
    """As if the labels matched: leaves what the other marks say, such as protection and dry run."""
    return msgspec.structs.replace(known, source=msgspec.structs.replace(known.source, opt_in="", opt_out=""))


def decision_without_dry_run(facts: ObjectFacts, policy: PolicySettings) -> PolicyDecision:
    """What would be done without dry run."""
    return decide_deletion_policy(
        facts.annotations, facts.namespace_annotations, policy, _known(facts, policy).service, facts.settings,
        default=facts.default_policy,
    )  # fmt: skip


def _unwatched(facts: ObjectFacts) -> str:
    """Why its source does not watch it: the event is forged, or older than the settings."""
    ref, source = facts.ref, facts.settings
    if source.namespaces and ref.namespace not in source.namespaces:
        return f"source {ref.source} is not about namespace {ref.namespace!r}"
    if gc_switch(facts.annotations, source) is None and not parse_selector(source.selector).matches(facts.labels):
        return f"its labels don't fit its source's selector, {source.selector!r}"
    return ""


def _known(facts: ObjectFacts, policy: PolicySettings) -> PolicyInput:
    return PolicyInput(
        source=facts.settings, policy=policy, features=facts.features, labels=facts.labels,
        annotations=facts.annotations, namespace=facts.namespace_annotations, default=facts.default_policy,
    )  # fmt: skip
