"""Tells apart a server that is away for now from a call that is wrong and will stay so.
The first is waited out, the second is a fault and must be seen."""

import builtins
from typing import Final

from redis import exceptions as errors

# What a call raises while the server is away, is coming back, or cannot write for now. A refused login is one
# of them: while a password rotates, file and server differ for a while, and who gave up then would stay down.
AWAY: Final[tuple[type[Exception], ...]] = (
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

# Codes of errors for which the client library has no class of its own.
_AWAY_CODES: Final = frozenset(
    {
        "BUSY",  # a script has been running for too long; it may be ended
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


def is_away(error: BaseException) -> bool:
    """Whether the same call may succeed later without anybody having changed it."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_away(part) for part in error.exceptions)
    if isinstance(error, AWAY):
        return True
    return isinstance(error, errors.ResponseError) and str(error).partition(" ")[0] in _AWAY_CODES
