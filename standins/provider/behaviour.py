"""How the simulated provider behaves: its latency, quota, faults and time scale.
Durations are given as in the real world; the scale says how many of its seconds pass in one of ours."""

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
    # After a refusal for want of quota the account is refused everything for at least so long.
    pause: timedelta = timedelta(0)
    # The part of deletes that fail with a 500, having done nothing.
    errors: float = 0.0
    scale: float = 1.0
    seed: int = 0

    def real(self, duration: timedelta) -> float:
        """Seconds that a duration of the provider takes here."""
        return duration.total_seconds() / self.scale
