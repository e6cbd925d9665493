"""The quota of one account, on the provider's side of the wire.
It is written independently of the budgets that it is there to test."""

from dataclasses import dataclass

from standins.provider.behaviour import Behaviour, Quota


@dataclass(slots=True)
class Meter:
    """What is left of one account's quota; `per` is in real seconds, like all times here."""

    quota: Quota
    per: float
    left: float
    since: float

    @classmethod
    def of(cls, quota: Quota, behaviour: Behaviour, now: float) -> "Meter":
        return cls(quota, behaviour.real(quota.per), quota.capacity, now)

    def spend(self, now: float, tokens: float = 1.0) -> bool:
        """Takes the tokens if they are there."""
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
        # Who arrived first may be judged second.
        elapsed = max(0.0, now - self.since)
        if self.quota.kind == "bucket":
            self.left = min(self.quota.capacity, self.left + elapsed * self.quota.capacity / self.per)
            self.since += elapsed
        elif elapsed >= self.per:
            self.since += elapsed // self.per * self.per
            self.left = self.quota.capacity
