"""Scope: whether an object is managed at all, from its annotations, its source's selectors, pauses and dry runs.

An annotation on the object has precedence over the selectors; a dry run at any level applies.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import DRY_RUN, GC
from service.policy.annotations import NAMESPACE, OBJECT, AmbiguousAnnotation, AnnotationValue, agreed_value
from service.policy.decisions import PolicyDecision
from service.policy.selectors import parse_selector
from service.settings.features import FeatureSettings
from service.settings.sources import PolicySettings, SourceSettings
from service.sources.registry import source_named

GC_ALLOWED: Final = ("enabled", "disabled")
DRY_RUN_ALLOWED: Final = ("true", "false")


def pause_decision(policy: PolicySettings, source: SourceSettings, features: FeatureSettings) -> PolicyDecision | None:
    """`paused` where a feature flag or a pause stops the whole source; None otherwise."""
    feature = source_named(source.collector).feature
    if not features.on(feature):
        return PolicyDecision(
            "paused", f"the feature {feature} is off, which its source's collector {source.collector} needs; "
            f"set features.{feature} to go on",
        )  # fmt: skip
    if policy.paused:
        return PolicyDecision("paused", "the setting policy.paused is on")
    if source.paused:
        return PolicyDecision("paused", "its source is paused")
    return None


def object_pause_decision(annotations: Mapping[str, str], source: SourceSettings) -> PolicyDecision | None:
    """`paused` or `retain` by the rule of the source, as for objects that are moved to another cluster."""
    pause = source_named(source.collector).pause
    return None if pause is None else pause(annotations)


def gc_switch(annotations: Mapping[str, str], source: SourceSettings) -> AnnotationValue | AmbiguousAnnotation | None:
    """The opt-in or opt-out of the object itself: `enabled` or `disabled`. A collector may know a third-party
    annotation with the same meaning; where both are present, they must agree."""
    ours = _mark(GC, GC_ALLOWED, annotations, OBJECT)
    switch = source_named(source.collector).switch
    theirs = None if switch is None else _mark(switch.name, (switch.enabled, switch.disabled), annotations, OBJECT)
    if switch is None or theirs is None or isinstance(ours, AmbiguousAnnotation):
        return ours
    if isinstance(theirs, AmbiguousAnnotation):
        return theirs
    word = "enabled" if theirs.word == switch.enabled else "disabled"
    if ours is not None and ours.word != word:
        reason = f"annotations {GC} ({ours.word}) and {switch.name} ({theirs.word}) of {OBJECT} disagree; keep one"
        return AmbiguousAnnotation(f"{reason} of them", switch.name)
    return theirs._replace(word=word)


def scope_decision(
    annotations: Mapping[str, str], labels: Mapping[str, str], source: SourceSettings
) -> PolicyDecision | None:
    """`out-of-scope` or `hold` (ambiguous annotations); None for an object in scope."""
    match gc_switch(annotations, source):
        case AmbiguousAnnotation(reason, mark):
            return PolicyDecision("hold", reason, mark)
        case None:
            return _by_labels(labels, source)
        case found:
            return None if found.word == "enabled" else PolicyDecision("out-of-scope", found.reason, found.mark)


def _by_labels(labels: Mapping[str, str], source: SourceSettings) -> PolicyDecision | None:
    if source.opt_out.strip() and parse_selector(source.opt_out, "opt_out").matches(labels):
        return PolicyDecision("out-of-scope", f"its labels fit its source's opt_out, {source.opt_out!r}")
    if not parse_selector(source.opt_in, "opt_in").matches(labels):
        return PolicyDecision("out-of-scope", f"its labels don't fit its source's opt_in, {source.opt_in!r}")
    return None


def dry_run_decision(
    annotations: Mapping[str, str], namespace: Mapping[str, str], policy: PolicySettings, source: SourceSettings
) -> PolicyDecision | None:
    """`dry-run` or `hold` (ambiguous annotations); None where deletions are carried out."""
    on: PolicyDecision | None = None
    for level, found in ((OBJECT, annotations), (NAMESPACE, namespace)):
        match _mark(DRY_RUN, DRY_RUN_ALLOWED, found, level):
            case AmbiguousAnnotation(reason, mark):
                return PolicyDecision("hold", reason, mark)
            case said if said is not None and said.word == "true":
                on = on or PolicyDecision("dry-run", said.reason, said.mark)
    if on is None and source.dry_run:
        return PolicyDecision("dry-run", "its source's dry_run is on")
    if on is None and policy.dry_run:
        return PolicyDecision("dry-run", "the setting policy.dry_run is on")
    return on


def _mark(
    name: str, allowed: tuple[str, ...], annotations: Mapping[str, str], level: str
) -> AnnotationValue | AmbiguousAnnotation | None:
    value = annotations.get(name)
    return None if value is None else agreed_value(((name, value),), allowed, level)
