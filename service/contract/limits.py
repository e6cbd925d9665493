"""What a call draws on: limits of a provider's account, and what answers tell about them.

A lane is named PROVIDER/ACCOUNT/.../OPERATION; its first two parts are the place whose budget it shares.
"""

from datetime import timedelta
from typing import Literal

import msgspec


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket (capacity, refilled over `per`) or a fixed window (capacity anew every `per`).

    `spare` tokens are never used by us: a margin for others who draw on the same quota unseen. Of a limit that `learns`
    the provider does not report what is left: a bucket whose rate is raised step by step while nothing is refused.
    """

    name: str
    capacity: float
    per: timedelta
    kind: Literal["bucket", "window"] = "bucket"
    spare: float = 0.0
    learns: bool = False

    @classmethod
    def bucket(cls, name: str, capacity: float, rate: float, spare: float = 0.0, *, learns: bool = False) -> "Limit":
        """A bucket of `capacity` tokens that refills at `rate` a second."""
        return cls(name=name, capacity=capacity, per=timedelta(seconds=capacity / rate), spare=spare, learns=learns)

    @classmethod
    def window(cls, name: str, capacity: float, per: timedelta, spare: float = 0.0) -> "Limit":
        return cls(name=name, capacity=capacity, per=per, kind="window", spare=spare)


class Draw(msgspec.Struct, frozen=True):
    """`cost` tokens of one limit for every job of a lane.

    Where a bucket has too few for all that is due, the lane is not served one by one: it waits until there are enough
    for `together` jobs, though never for more than half of what the bucket holds.
    """

    limit: Limit
    cost: float = 1.0
    together: float = 0.0


class Remaining(msgspec.Struct, frozen=True, tag="remaining"):
    """A call came back; a response header told how much of its limit is left (None: it did not). `tokens` is what the
    call drew, where a job makes several calls on the same limit; else it is all that the job draws."""

    limit: str
    left: float | None = None
    tokens: float | None = None


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """The provider refused for want of quota; `wait` is what it named, if it named anything. `tokens` as above.
    `others` are limits that the call drew on as well, where the answer does not say which of them was used up."""

    limit: str
    wait: timedelta | None = None
    tokens: float | None = None
    others: tuple[str, ...] = ()


Feedback = Remaining | Pause


def place_of(lane: str) -> str:
    """The budget that a lane draws on."""
    return "/".join(lane.split("/", 2)[:2])
