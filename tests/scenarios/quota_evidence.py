"""Checks of the quota scenario against the provider's own log and the calls of the second client.

Complaints are sentences about calls during a pause or too early after one; the shares are figures for the bench."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from tests.simulated import JournalLine, Quota

ON_ITS_WAY = 1.0
"""Seconds after a refusal in which calls may arrive that were sent before it was known; a busy machine needs that."""


@dataclass(frozen=True, slots=True)
class Pause:
    """From the refusal to the moment that it named."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class QuotaEvidence:
    quota: Quota
    scale: float
    deletes: list[JournalLine]
    """Every DELETE that reached the provider, in the order of arrival."""
    taken: list[tuple[float, float]]
    """When the second client took how many tokens."""
    headers: bool
    """Whether answers told what is left."""

    @property
    def rate(self) -> float:
        """Tokens that flow in a second of ours."""
        return self.quota.capacity / (self.quota.per / timedelta(seconds=1)) * self.scale

    @property
    def seconds(self) -> float:
        return self.deletes[-1].arrived - self.deletes[0].arrived

    @property
    def refused(self) -> list[JournalLine]:
        return [line for line in self.deletes if line.status == 429]

    @property
    def used_share(self) -> float:
        """Calls that were let through, of all that the second client left: a full bucket and what flowed in."""
        first, last = self.deletes[0].arrived, self.deletes[-1].arrived
        taken = sum(tokens for at, tokens in self.taken if first <= at <= last)
        left = self.quota.capacity + self.rate * self.seconds - taken
        return (len(self.deletes) - len(self.refused)) / left

    def used_share_after(self, seconds: float) -> float:
        """Calls that were let through from so many of the provider's seconds after the first call on, of what flowed in
        meanwhile."""
        begin, last = self.deletes[0].arrived + seconds / self.scale, self.deletes[-1].arrived
        served = sum(line.status != 429 for line in self.deletes if line.arrived >= begin)
        return served / (self.rate * (last - begin)) if last > begin else 0.0

    @property
    def throttled_share(self) -> float:
        return len(self.refused) / len(self.deletes)

    def pauses(self) -> list[Pause]:
        """Refusals during a pause make it longer, if at all."""
        found: list[Pause] = []
        for line in self.refused:
            end = line.retry_until or line.at
            if found and line.arrived <= found[-1].end:
                found[-1] = Pause(found[-1].begin, max(found[-1].end, end))
            else:
                found.append(Pause(line.at, end))
        return found

    def complaints(self) -> list[str]:
        return [*self._during(), *self._early()]

    def _during(self) -> Iterator[str]:
        for pause in self.pauses():
            for line in self.deletes:
                if pause.begin + ON_ITS_WAY < line.arrived < pause.end:
                    after, said = line.arrived - pause.begin, pause.end - pause.begin
                    yield f"{line.caller} called {after:.3f} s after a refusal that said {said:.3f} s"

    def _early(self) -> Iterator[str]:
        """After a pause the bucket counts as empty: calls come as tokens flow in, or as the provider told of more."""
        arrivals = [line.arrived for line in self.deletes]
        pauses = self.pauses()
        for place, pause in enumerate(pauses):
            until = pauses[place + 1].begin if place + 1 < len(pauses) else arrivals[-1]
            first = bisect_left(arrivals, pause.end)
            for count, line in enumerate(self.deletes[first:], 1):
                if line.arrived > until:
                    break
                allowed = 1 + self.rate * (line.arrived - pause.end) + self._told(pause.end, line.arrived)
                if count > allowed:
                    after = line.arrived - pause.end
                    yield f"{count} calls within {after:.3f} s after a pause, where {allowed:.1f} could be known of"

    def _told(self, since: float, until: float) -> float:
        """The most that an answer told of after the pause, or so shortly before that it counted only then."""
        told = (line.remaining or 0.0 for line in self._telling() if since - ON_ITS_WAY <= line.at <= until)
        return max(told, default=0.0)

    def _telling(self) -> list[JournalLine]:
        return [line for line in self.deletes if line.status != 429] if self.headers else []
