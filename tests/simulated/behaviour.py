"""Settings of the simulated provider: latency, quota, faults and time scale.
Durations are those of a real provider; with a scale of 30, 30 of its seconds pass in one real second."""

from datetime import timedelta
from typing import Literal

import msgspec


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The quota that each account has for its deletes: a token bucket, or a fixed window."""

    capacity: float
    per: timedelta
    kind: Literal["bucket", "window"] = "bucket"

    @classmethod
    def parse(cls, text: str) -> "Quota":
        """Reads `bucket:1000/300`: capacity, and seconds for all of it. Raises ValueError."""
        kind, colon, rest = text.partition(":")
        capacity, slash, per = rest.partition("/")
        if kind not in ("bucket", "window") or not colon or not slash:
            raise ValueError(f"a quota is written as bucket:1000/300 or window:1000/300, not {text!r}")
        quota = cls(kind=kind, capacity=float(capacity), per=timedelta(seconds=float(per)))  # type: ignore[arg-type]
        if quota.capacity < 1 or quota.per <= timedelta(0):
            raise ValueError(f"a quota has a capacity of at least 1 and a time above 0, not {text!r}")
        return quota


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """`latency` is real time and not scaled: it is the network's, not the provider's."""

    latency: tuple[timedelta, timedelta] = (timedelta(0), timedelta(0))
    quota: Quota | None = None
    remaining_header: bool = True
    retry_after_header: bool = True
    # How long, at least, every delete of an account is refused after one was refused for want of quota.
    pause: timedelta = timedelta(0)
    # The part of deletes that fail with a 500, having done nothing.
    errors: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def real(self, duration: timedelta) -> float:
        """A duration of the provider in real seconds."""
        return duration.total_seconds() / self.scale
