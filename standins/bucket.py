"""A token bucket as clouds keep them, by the time that it is told.
It is written independently of the limits that Knell keeps, which the stand-ins are there to test."""

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    capacity: float
    rate: float
    left: float
    since: float

    def refill(self, now: float) -> None:
        self.left = min(self.capacity, self.left + max(0.0, now - self.since) * self.rate)
        self.since = now
