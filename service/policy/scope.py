"""Whether an object is ours to look after at all: its own marks, its source's selectors, pauses, and dry runs.

A person's mark on one object outweighs the selectors; a dry run that is on at any level is on.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import DRY_RUN, GC
from service.contract.traits import traits_of
from service.policy.annotations import NAMESPACE, OBJECT, Said, Unclear, one_of
from service.policy.capi import stands_still
from service.policy.decisions import Decision
from service.policy.selectors import parse
from service.settings.aws import FeatureSettings
from service.settings.sources import PolicySettings, SourceSettings

GC_ALLOWED: Final = ("enabled", "disabled")
DRY_RUN_ALLOWED: Final = ("true", "false")


def stopped(policy: PolicySettings, source: SourceSettings, features: FeatureSettings) -> Decision | None:
    """Why nothing of a source is touched at the moment; None where nothing stands against it."""
    feature = traits_of(source.collector).feature
    if not features.on(feature):
        return Decision(
            "paused", f"the feature {feature} is off, which its source's collector {source.collector} needs; "
            f"set features.{feature} to go on",
        )  # fmt: skip
    if policy.paused:
        return Decision("paused", "the setting policy.paused is on")
    if source.paused:
        return Decision("paused", "its source is paused")
    return None


def still(annotations: Mapping[str, str], source: SourceSettings) -> Decision | None:
    """`paused` or `retain` where Cluster API says so on the object, of a source whose objects belong to Clusters."""
    return stands_still(annotations) if traits_of(source.collector).capi else None


def switched(annotations: Mapping[str, str], source: SourceSettings) -> Said | Unclear | None:
    """What the object itself says about being collected: `enabled` or `disabled`. A source's collector may know an
    annotation of others that says the same in other words; where both stand there, they must agree."""
    ours = _mark(GC, GC_ALLOWED, annotations, OBJECT)
    switch = traits_of(source.collector).switch
    theirs = None if switch is None else _mark(switch.name, (switch.enabled, switch.disabled), annotations, OBJECT)
    if switch is None or theirs is None or isinstance(ours, Unclear):
        return ours
    if isinstance(theirs, Unclear):
        return theirs
    word = "enabled" if theirs.word == switch.enabled else "disabled"
    if ours is not None and ours.word != word:
        reason = f"annotations {GC} ({ours.word}) and {switch.name} ({theirs.word}) of {OBJECT} disagree; keep one"
        return Unclear(f"{reason} of them", switch.name)
    return theirs._replace(word=word)


def outside(annotations: Mapping[str, str], labels: Mapping[str, str], source: SourceSettings) -> Decision | None:
    """Why it is not ours, or why nobody can tell; None for what is in scope. A mark that decided is named."""
    match switched(annotations, source):
        case Unclear(reason, mark):
            return Decision("hold", reason, mark)
        case None:
            return _by_labels(labels, source)
        case found:
            return None if found.word == "enabled" else Decision("out-of-scope", found.reason, found.mark)


def _by_labels(labels: Mapping[str, str], source: SourceSettings) -> Decision | None:
    if source.opt_out.strip() and parse(source.opt_out, "opt_out").matches(labels):
        return Decision("out-of-scope", f"its labels fit its source's opt_out, {source.opt_out!r}")
    if not parse(source.opt_in, "opt_in").matches(labels):
        return Decision("out-of-scope", f"its labels don't fit its source's opt_in, {source.opt_in!r}")
    return None


def dry_run(
    annotations: Mapping[str, str], namespace: Mapping[str, str], policy: PolicySettings, source: SourceSettings
) -> Decision | None:
    """Why nothing is destroyed, or why nobody can tell; None where it is meant."""
    on: Decision | None = None
    for level, found in ((OBJECT, annotations), (NAMESPACE, namespace)):
        match _mark(DRY_RUN, DRY_RUN_ALLOWED, found, level):
            case Unclear(reason, mark):
                return Decision("hold", reason, mark)
            case said if said is not None and said.word == "true":
                on = on or Decision("dry-run", said.reason, said.mark)
    if on is None and source.dry_run:
        return Decision("dry-run", "its source's dry_run is on")
    if on is None and policy.dry_run:
        return Decision("dry-run", "the setting policy.dry_run is on")
    return on


def _mark(name: str, allowed: tuple[str, ...], annotations: Mapping[str, str], level: str) -> Said | Unclear | None:
    value = annotations.get(name)
    return None if value is None else one_of(((name, value),), allowed, level)
