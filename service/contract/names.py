"""The names by which Knell is known in a cluster: finalizer, annotations, condition.

They are part of the contract: objects carry them long after the process that wrote them.
"""

import zlib
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

WITNESS: Final = f"{PREFIX}/witness"
"""On a Lease: a counter that grows with every renewal. One that went back was restored from a backup."""

CONDITION: Final = "ExternalResourcesRemoved"
CONTROLLER: Final = "knell"


def sweep_lease(source: str) -> str:
    """The Lease of the one process that sweeps a source."""
    return f"knell-{source}-sweep"


def share_lease(source: str, part: int) -> str:
    """The Lease of the one process that watches a share of a source."""
    return f"knell-{source}-{part}"


def part_of(namespace: str, parts: int) -> int:
    """Which of a source's shares a namespace belongs to; objects without one belong to the first."""
    return zlib.crc32(namespace.encode()) % parts if namespace else 0
