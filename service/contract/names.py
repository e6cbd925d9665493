"""The names by which Knell is known in a cluster: finalizer, annotations, condition.

They are part of the contract: objects carry them long after the process that wrote them.
"""

from typing import Final

FINALIZER: Final = "knell.dev/cleanup"
"""Holds an object until everything that it owned outside is gone."""

PREFIX: Final = "knell.dev"
ACK_PREFIX: Final = "services.k8s.aws"

DELETION_POLICY: Final = "deletion-policy"
PREVENT_DELETE: Final = "prevent-delete"
GC: Final = f"{PREFIX}/gc"
"""`enabled` marks one object whatever its age, `disabled` opts it out."""
DRY_RUN: Final = f"{PREFIX}/dry-run"
STATUS: Final = f"{PREFIX}/status"
"""What is told where an object has no status subresource."""

CONDITION: Final = "ExternalResourcesRemoved"
CONTROLLER: Final = "knell"


def sweep_lease(source: str) -> str:
    """The Lease of the one process that sweeps a source."""
    return f"knell-{source}-sweep"
