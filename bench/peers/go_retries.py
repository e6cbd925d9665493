"""Retries as in the AWS SDK for Go by default: three attempts, with random waits from a doubling span.

With it a program in Python calls as often, and as soon after a refusal, as one in Go does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from botocore.exceptions import ClientError, HTTPClientError

T = TypeVar("T")

ATTEMPTS: Final = 3
LONGEST_WAIT: Final = 20.0
# The SDK knows more names for it; these are the ones that the services asked here use.
THROTTLES: Final = frozenset({"Throttling", "ThrottledException", "RequestLimitExceeded"})
PASSING: Final = frozenset({500, 502, 503, 504})


class GoRetries:
    """Waits are shortened by `scale`, as the account's time is. Its budget for retries is left out: it has room for a
    hundred in a row, and no cluster comes near that."""

    def __init__(self, scale: float = 1.0, draw: Callable[[], float] = random.random) -> None:
        self._scale, self._draw = scale, draw

    async def of(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call answers; raises what its last attempt raised."""
        for attempt in range(1, ATTEMPTS):
            try:
                return await call()
            except (ClientError, HTTPClientError) as error:
                if not _passes(error):
                    raise
            await asyncio.sleep(self.wait_after(attempt))
        return await call()

    def wait_after(self, attempt: int) -> float:
        """Seconds; attempts are counted from one."""
        return min(self._draw() * 2.0**attempt, LONGEST_WAIT) / self._scale


def _passes(error: Exception) -> bool:
    if not isinstance(error, ClientError):
        return True
    response: dict[str, Any] = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return response["Error"]["Code"] in THROTTLES or status in PASSING
