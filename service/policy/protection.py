"""Protection: `prevent-delete: true` on an object or its Namespace, which nothing of it may be destroyed against.

It is asked on what is live right before every destructive call, and never edited by us.
"""

from collections.abc import Mapping
from typing import Final

from service.contract.names import PREVENT_DELETE
from service.policy.annotations import Unclear, said
from service.policy.decisions import Decision

ALLOWED: Final = ("true", "false")


def protected(annotations: Mapping[str, str], namespace: Mapping[str, str], service: str) -> Decision:
    """`free`, `protected` or `hold`."""
    found = said(PREVENT_DELETE, ALLOWED, service, annotations, namespace)
    if found is None:
        return Decision("free", "nothing protects it")
    if isinstance(found, Unclear):
        return Decision("hold", found.reason, found.mark)
    return Decision("protected" if found.word == "true" else "free", found.reason, found.mark)
