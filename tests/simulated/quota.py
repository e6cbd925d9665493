"""Quota of one account as the provider counts it.
It shares no code with the budgets that it tests."""

from dataclasses import dataclass

from tests.simulated.behaviour import Behaviour, Quota


@dataclass(slots=True)
class QuotaMeter:
    """All times are real seconds."""

    quota: Quota
    per: float
    left: float
    since: float

    @classmethod
    def of(cls, quota: Quota, behaviour: Behaviour, now: float) -> "QuotaMeter":
        return cls(quota, behaviour.real(quota.per), quota.capacity, now)

    def spend(self, now: float, tokens: float = 1.0) -> bool:
        """Takes the tokens if there are enough; returns whether it did."""
        self._refill(now)
        if self.left < tokens - 1e-9:
            return False
        self.left -= tokens
        return True

    def remaining(self, now: float) -> float:
        self._refill(now)
        return self.left

    def wait(self, now: float) -> float:
        """Seconds until one token is there."""
        self._refill(now)
        if self.left >= 1:
            return 0.0
        if self.quota.kind == "window":
            return self.since + self.per - now
        return (1 - self.left) * self.per / self.quota.capacity

    def _refill(self, now: float) -> None:
        # Requests may be counted in another order than they arrived.
        elapsed = max(0.0, now - self.since)
        if self.quota.kind == "bucket":
            self.left = min(self.quota.capacity, self.left + elapsed * self.quota.capacity / self.per)
            self.since += elapsed
        elif elapsed >= self.per:
            self.since += elapsed // self.per * self.per
            self.left = self.quota.capacity
