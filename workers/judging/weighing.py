"""What policy makes of an object that is going: delete, retain, or hold, each with its reason.
Pure: the facts and the settings go in. Leaving the scope lets nothing go; a mark that says so does, wherever it is."""

import msgspec

from service.policy.decisions import Decision
from service.policy.deletion import decide
from service.policy.scope import switched
from service.policy.selectors import parse
from service.policy.verdict import Facts as PolicyFacts
from service.policy.verdict import verdict_of
from service.settings import PolicySettings
from workers.handlers.objects import Facts

STAYS = "what is already going is not released by that"


def weigh(facts: Facts, policy: PolicySettings) -> Decision:
    """`delete`, `retain`, `dry-run`, or why it is held: `hold`, `protected`, `paused`."""
    known = _known(facts, policy)
    found = verdict_of(known)
    if found.kind == "out-of-scope":
        if found.mark:
            # The object itself says so, not its labels or a changed setting.
            return Decision("retain", found.reason, found.mark)
        return _retained(verdict_of(_in_scope(known))) or Decision("hold", f"{found.reason}; {STAYS}", found.mark)
    if found.kind in ("delete", "retain", "dry-run") and (reason := _unwatched(facts)):
        return _retained(found) or Decision("hold", f"{reason}; {STAYS}")
    return found


def _retained(found: Decision) -> Decision | None:
    """Retain, where the object or its Namespace says so: then it is let go by whoever marked it, and by no change of
    settings, and nothing outside is lost sight of that was meant to go."""
    return found if found.kind == "retain" and found.mark else None


def _in_scope(known: PolicyFacts) -> PolicyFacts:
    """As if its labels fitted: what its marks say beside that, protection and dry runs among it."""
    return msgspec.structs.replace(known, source=msgspec.structs.replace(known.source, opt_in="", opt_out=""))


def meant(facts: Facts, policy: PolicySettings) -> Decision:
    """What would be done if it were no dry run."""
    return decide(facts.annotations, facts.namespace_annotations, policy, _known(facts, policy).service, facts.settings)


def _unwatched(facts: Facts) -> str:
    """Why its source does not even watch it: then its event is forged, or older than the settings."""
    about, source = facts.about, facts.settings
    if source.namespaces and about.namespace not in source.namespaces:
        return f"source {about.source} is not about namespace {about.namespace!r}"
    if switched(facts.annotations, source) is None and not parse(source.selector).matches(facts.labels):
        return f"its labels don't fit its source's selector, {source.selector!r}"
    return ""


def _known(facts: Facts, policy: PolicySettings) -> PolicyFacts:
    return PolicyFacts(
        source=facts.settings, policy=policy, features=facts.features, labels=facts.labels,
        annotations=facts.annotations, namespace=facts.namespace_annotations,
    )  # fmt: skip
