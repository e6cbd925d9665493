"""Deletion policy: whether the external resources of an object are deleted with it or retained.

Precedence: the object's annotation, its Namespace's, then the settings for its service, its source, and the default,
which some sources read elsewhere (`default_policy` of their declaration).
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import DELETION_POLICY
from service.policy.annotations import AmbiguousAnnotation, AnnotationValue, deciding_annotation
from service.policy.decisions import DefaultPolicy, PolicyDecision
from service.policy.services import normalized
from service.settings.sources import PolicySettings, PolicyWord, SourceSettings
from service.sources.registry import source_named

ALLOWED: Final = ("delete", "retain")
SNAPSHOT: Final = "snapshot"
"""Deletes after a snapshot; only for the resources that a source's declaration names."""


def decide_deletion_policy(
    annotations: Mapping[str, str],
    namespace: Mapping[str, str],
    policy: PolicySettings,
    service: str,
    source: SourceSettings,
    *,
    default: DefaultPolicy | None = None,
) -> PolicyDecision:
    """`namespace` are the annotations of the object's Namespace; empty for a cluster-scoped object. `default` is that
    of a source that reads its own."""
    match deciding_annotation(DELETION_POLICY, allowed_words(source), service, annotations, namespace):
        case AmbiguousAnnotation(reason, mark):
            return PolicyDecision("hold", reason, mark)
        case AnnotationValue(word, reason, mark):
            return PolicyDecision(_kind(word), reason, mark, snapshot=word == SNAPSHOT)
    return _by_settings(policy, service, source) or _by_default(policy, service, source, default)


def allowed_words(source: SourceSettings) -> tuple[str, ...]:
    """The values of the annotation that the objects of a source may have."""
    snapshots = source.resource in source_named(source.collector).snapshots
    return (*ALLOWED, SNAPSHOT) if snapshots else ALLOWED


def needs_default(policy: PolicySettings, service: str, source: SourceSettings) -> bool:
    """Whether the source has a default of its own to read, because the settings name no policy for it."""
    own = source_named(source.collector).default_policy is not None
    return own and _by_settings(policy, service, source) is None


def _by_default(
    policy: PolicySettings, service: str, source: SourceSettings, default: DefaultPolicy | None
) -> PolicyDecision:
    if source_named(source.collector).default_policy is None:
        word = policy.deletion_policy
        return PolicyDecision(_kind(word), f"the setting policy.deletion_policy says {word}")
    if default is not None and default.word:
        return PolicyDecision(_kind(default.word), default.reason)
    why = "the default of its source was not read" if default is None else default.reason
    return PolicyDecision(
        "hold",
        f"whether what it owns is deleted or kept is not said: {why}; set policy.services.{service or 'SERVICE'} to "
        f"delete or retain, or annotate it or its Namespace",
    )


def _by_settings(policy: PolicySettings, service: str, source: SourceSettings) -> PolicyDecision | None:
    """None if the settings name no policy for the service or the source."""
    named = {name: word for name, word in policy.services.items() if service and normalized(name) == service}
    if len(set(named.values())) > 1:
        return PolicyDecision(
            "hold", f"the settings {_listed(named)} are for the same service and disagree; keep one of them"
        )
    for name, word in named.items():
        return PolicyDecision(_kind(word), f"the setting policy.services.{name} says {word}")
    if source.deletion_policy is not None:
        return PolicyDecision(
            _kind(source.deletion_policy), f"its source's deletion_policy says {source.deletion_policy}"
        )
    return None


def _kind(word: str) -> PolicyWord:
    return "retain" if word == "retain" else "delete"


def _listed(named: Mapping[str, str]) -> str:
    return " and ".join(f"policy.services.{name} ({word})" for name, word in sorted(named.items()))
