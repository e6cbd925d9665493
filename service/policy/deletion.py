"""The deletion policy: whether what an object owned outside goes with it (delete) or stays (retain).

The object's annotation is asked first, then its Namespace's, then the settings: for its service, its source, for all.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import DELETION_POLICY
from service.policy.annotations import Said, Unclear, said
from service.policy.decisions import Decision
from service.policy.services import normal
from service.settings.sources import PolicySettings, PolicyWord, SourceSettings

ALLOWED: Final = ("delete", "retain")


def decide(
    annotations: Mapping[str, str],
    namespace: Mapping[str, str],
    policy: PolicySettings,
    service: str,
    source: SourceSettings,
) -> Decision:
    """`namespace` are the annotations of the object's Namespace: none for an object that has none."""
    match said(DELETION_POLICY, ALLOWED, service, annotations, namespace):
        case Unclear(reason, mark):
            return Decision("hold", reason, mark)
        case Said(word, reason, mark):
            return Decision(_kind(word), reason, mark)
    return _by_settings(policy, service, source)


def _by_settings(policy: PolicySettings, service: str, source: SourceSettings) -> Decision:
    named = {name: word for name, word in policy.services.items() if service and normal(name) == service}
    if len(set(named.values())) > 1:
        return Decision(
            "hold", f"the settings {_listed(named)} are for the same service and disagree; keep one of them"
        )
    for name, word in named.items():
        return Decision(_kind(word), f"the setting policy.services.{name} says {word}")
    if source.deletion_policy is not None:
        return Decision(_kind(source.deletion_policy), f"its source's deletion_policy says {source.deletion_policy}")
    return Decision(_kind(policy.deletion_policy), f"the setting policy.deletion_policy says {policy.deletion_policy}")


def _kind(word: str) -> PolicyWord:
    return "retain" if word == "retain" else "delete"


def _listed(named: Mapping[str, str]) -> str:
    return " and ".join(f"policy.services.{name} ({word})" for name, word in sorted(named.items()))
