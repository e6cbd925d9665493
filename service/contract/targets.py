"""Plan: the targets of a deletion, in chains and stages.

The stages of a chain run one after another; chains run side by side, except for the chain `finally`, which runs last.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Literal

import msgspec

Strategy = Literal["required", "best-effort"]

RELEASE = "release"
"""The kind of the last job of a deletion, and the last part of its lane."""

FINALLY: Final = "finally"
"""The chain that begins when all other chains have ended. Only the release comes after it."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One external resource and how it is removed. `data` is text for its handler; `after` is the delay from the
    opening of its stage. A target that was not `seen` is looked up by name and may not exist. Where ids are names that
    can be reused, `incarnation` tells the resource from an earlier one."""

    kind: str
    id: str
    lane: str
    chain: str = "main"
    stage: int = 0
    strategy: Strategy = "required"
    data: str = ""
    after: timedelta = timedelta(0)
    seen: bool = True
    incarnation: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Targets of the same identity are the same resource."""
        return self.kind, self.id, self.incarnation


class Plan(msgspec.Struct, frozen=True):
    """The targets of one deletion. A plan without targets consists of the release only.

    `why` is the policy decision, which is recorded where it is given.
    """

    targets: Iterable[Target]
    why: str = ""


class Hold(msgspec.Struct, frozen=True):
    """The deletion can't be planned now, for `reason`, and is held for an operator. With `waits` it is shown as waiting
    instead: something must end first that needs no operator, such as Machines that still exist.

    With `again` it is planned again with growing delays, or each time after exactly `after`.
    """

    reason: str
    again: bool = False
    after: timedelta | None = None
    waits: bool = False


def order_of(target: Target) -> tuple[bool, str, int]:
    """Sort key of targets: by chain and stage, with the chain `finally` last."""
    return target.chain == FINALLY, target.chain, target.stage


def lane_fault(lane: str) -> str | None:
    """Why a lane's name is invalid, or None."""
    parts = lane.split("/")
    if len(parts) < 3 or not all(parts):
        return f"lane {lane!r} must be named PROVIDER/ACCOUNT/.../OPERATION"
    if any(character in "{}|" or character.isspace() for character in lane):
        return f"lane {lane!r} must not contain braces, bars or white space"
    if lane.endswith(":urgent"):
        return f"lane {lane!r} must not end in :urgent, which names the urgent side of a lane"
    return None


def release_lane(cluster: str) -> str:
    """The lane of the releases of a cluster's objects."""
    return f"cluster/{cluster}/{RELEASE}"
