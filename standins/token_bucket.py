"""Token bucket of a cloud API, on a given clock.
It is independent of the limits in Knell, which the stand-ins exist to test."""

from dataclasses import dataclass


@dataclass(slots=True)
class TokenBucket:
    capacity: float
    rate: float
    left: float
    since: float

    def refill(self, now: float) -> None:
        self.left = min(self.capacity, self.left + max(0.0, now - self.since) * self.rate)
        self.since = now
