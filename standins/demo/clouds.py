"""What the end says of any cloud: who of those that only look like ours is still there, and whom a call was about.
Each cloud adds what was to go there; what was to stay is judged alike."""

from collections.abc import Collection
from datetime import timedelta

import msgspec


class CloudSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`kept` are resources that look like the object's, are not, and are there, of `to_keep`; `touched` are those that
    a call was about that changes something. `took` is how long after the object's deletion all was over."""

    kept: int
    to_keep: int
    touched: list[str]
    calls: int
    took: timedelta | None

    def harm(self, cloud: str) -> list[str]:
        """To those who were not to be touched."""
        problems = []
        if self.touched:
            problems.append(f"touched at {cloud}, and not to be: {some(self.touched)}")
        if self.kept != self.to_keep:
            problems.append(f"{self.kept} resources of others are at {cloud}, where {self.to_keep} should have stayed")
        return problems


def some(names: Collection[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return (", ".join(shown[:5]) or "none") + more
