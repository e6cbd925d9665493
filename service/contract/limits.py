"""Rate limits of a provider account, and feedback from responses about them.

A lane is named PROVIDER/ACCOUNT/.../OPERATION; its first two parts are the place whose budget it uses.
"""

from datetime import timedelta
from typing import Literal

import msgspec


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket (capacity, refilled over `per`) or a fixed window (full capacity every `per`).

    `spare` tokens are never used: a margin for other clients of the same quota. A limit that `learns` is a bucket whose
    remaining tokens the provider does not report; its rate is raised step by step while no call is throttled.
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

    Where a bucket has too few tokens for all due jobs, the lane waits until there are enough for `together` jobs, but
    never for more than half of the bucket's capacity.
    """

    limit: Limit
    cost: float = 1.0
    together: float = 0.0


class Remaining(msgspec.Struct, frozen=True, tag="remaining"):
    """A call was answered; `left` is the rest of the limit according to a response header (None: not reported).
    `tokens` is the cost of the call where a job makes several calls on the same limit; None: the whole cost of the
    job."""

    limit: str
    left: float | None = None
    tokens: float | None = None


class Pause(msgspec.Struct, frozen=True, tag="pause"):
    """A call was throttled; `wait` is the time that the response named, if any. `tokens` as in Remaining. `others` are
    further limits of the call, where the response does not say which one was exceeded."""

    limit: str
    wait: timedelta | None = None
    tokens: float | None = None
    others: tuple[str, ...] = ()


Feedback = Remaining | Pause


def place_of(lane: str) -> str:
    """The place whose budget a lane uses."""
    return "/".join(lane.split("/", 2)[:2])
