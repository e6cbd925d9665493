"""Classification of Redis errors: temporarily unavailable (retried) or a fault of the call (raised)."""

import builtins
from typing import Final

from redis import exceptions as errors

# Raised while the server is unreachable, starting, or cannot write for now. A refused login is included: during a
# password rotation the file and the server differ for a while.
UNAVAILABLE: Final[tuple[type[Exception], ...]] = (
    errors.ConnectionError,  # also: LOADING, no master known to Sentinel, refused login, no connection free
    errors.TimeoutError,
    errors.ReadOnlyError,
    errors.OutOfMemoryError,
    errors.TryAgainError,
    errors.ClusterError,  # also: CLUSTERDOWN, MASTERDOWN
    errors.SlotNotCoveredError,
    builtins.ConnectionError,
    builtins.TimeoutError,
)

# Error codes for which the client library has no class.
_AWAY_CODES: Final = frozenset(
    {
        "BUSY",  # a script has been running for too long
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",  # the disk refuses writes
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",  # a blocked read on a server that became a replica
    }
)


def is_unavailable(error: BaseException) -> bool:
    """Whether the same call may succeed later, unchanged."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_unavailable(part) for part in error.exceptions)
    if isinstance(error, UNAVAILABLE):
        return True
    return isinstance(error, errors.ResponseError) and str(error).partition(" ")[0] in _AWAY_CODES
