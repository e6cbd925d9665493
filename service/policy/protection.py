"""Protection: the annotation `prevent-delete: true` on an object or its Namespace, which forbids every deletion.

It is read from the live objects right before every destructive call. The service never changes it.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import PREVENT_DELETE
from service.policy.annotations import AmbiguousAnnotation, deciding_annotation
from service.policy.decisions import PolicyDecision

ALLOWED: Final = ("true", "false")


def decide_protection(annotations: Mapping[str, str], namespace: Mapping[str, str], service: str) -> PolicyDecision:
    """`free`, `protected` or `hold`."""
    found = deciding_annotation(PREVENT_DELETE, ALLOWED, service, annotations, namespace)
    if found is None:
        return PolicyDecision("free", "nothing protects it")
    if isinstance(found, AmbiguousAnnotation):
        return PolicyDecision("hold", found.reason, found.mark)
    return PolicyDecision("protected" if found.word == "true" else "free", found.reason, found.mark)
