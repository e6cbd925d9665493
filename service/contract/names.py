"""Names that Knell uses in a cluster: finalizer, annotations, condition, Leases.

Objects carry them longer than any process lives, so they must not change.
"""

import zlib
from typing import Final

FINALIZER: Final = "knell.dev/cleanup"
"""Holds an object until its external resources are removed."""

PREFIX: Final = "knell.dev"
ACK_PREFIX: Final = "services.k8s.aws"

DELETION_POLICY: Final = "deletion-policy"
PREVENT_DELETE: Final = "prevent-delete"
GC: Final = f"{PREFIX}/gc"
"""`enabled` opts one object in, whatever its age; `disabled` opts it out."""
DRY_RUN: Final = f"{PREFIX}/dry-run"
STATUS: Final = f"{PREFIX}/status"
"""The status of a deletion, for objects without a status subresource."""

WITNESS: Final = f"{PREFIX}/witness"
"""On a Lease: a counter that grows with every renewal, which detects a restore from a backup."""

CONDITION: Final = "ExternalResourcesRemoved"
CONTROLLER: Final = "knell"


def sweep_lease(source: str) -> str:
    """The Lease of the process that sweeps a source."""
    return f"knell-{source}-sweep"


def share_lease(source: str, part: int) -> str:
    """The Lease of the process that watches a share of a source."""
    return f"knell-{source}-{part}"


def part_of(namespace: str, parts: int) -> int:
    """The share of a source that a namespace belongs to; cluster-scoped objects belong to the first."""
    return zlib.crc32(namespace.encode()) % parts if namespace else 0
