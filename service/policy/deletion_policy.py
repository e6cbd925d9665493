"""Deletion policy: whether the external resources of an object are deleted with it or retained.

Precedence: the object's annotation, its Namespace's, then the settings for its service, its source, and the default.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import DELETION_POLICY
from service.policy.annotations import AmbiguousAnnotation, AnnotationValue, deciding_annotation
from service.policy.decisions import PolicyDecision
from service.policy.services import normalized
from service.settings.sources import PolicySettings, PolicyWord, SourceSettings

ALLOWED: Final = ("delete", "retain")


def decide_deletion_policy(
    annotations: Mapping[str, str],
    namespace: Mapping[str, str],
    policy: PolicySettings,
    service: str,
    source: SourceSettings,
) -> PolicyDecision:
    """`namespace` are the annotations of the object's Namespace; empty for a cluster-scoped object."""
    match deciding_annotation(DELETION_POLICY, ALLOWED, service, annotations, namespace):
        case AmbiguousAnnotation(reason, mark):
            return PolicyDecision("hold", reason, mark)
        case AnnotationValue(word, reason, mark):
            return PolicyDecision(_kind(word), reason, mark)
    return _by_settings(policy, service, source)


def _by_settings(policy: PolicySettings, service: str, source: SourceSettings) -> PolicyDecision:
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
    return PolicyDecision(
        _kind(policy.deletion_policy), f"the setting policy.deletion_policy says {policy.deletion_policy}"
    )


def _kind(word: str) -> PolicyWord:
    return "retain" if word == "retain" else "delete"


def _listed(named: Mapping[str, str]) -> str:
    return " and ".join(f"policy.services.{name} ({word})" for name, word in sorted(named.items()))
