"""What a plan says: which targets go, in which chains and stages.

A chain is a sequence of stages that wait for each other; chains do not wait for each other, but for the last one.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Literal

import msgspec

Strategy = Literal["required", "best-effort"]

RELEASE = "release"
"""The kind of a deletion's last job, and the last part of its lane."""

FINALLY: Final = "finally"
"""The chain that begins when every other chain of its plan has ended; the release comes after it."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One outside resource, and how it is to be removed. `data` is text that its handler understands; `after` is how
    long it is left alone, from when its stage opens. One that was not `seen` is looked for by name, and need not be
    there."""

    kind: str
    id: str
    lane: str
    chain: str = "main"
    stage: int = 0
    strategy: Strategy = "required"
    data: str = ""
    after: timedelta = timedelta(0)
    seen: bool = True


class Plan(msgspec.Struct, frozen=True):
    """The targets of one deletion; none at all is a plan too: then only the release is left.

    `why` is what policy said; where it is given, it is recorded as a decision.
    """

    targets: Iterable[Target]
    why: str = ""


class Hold(msgspec.Struct, frozen=True):
    """Nothing is planned now, for `reason`: the deletion is held for a person. With `waits` it needs none: something
    that goes on without anybody, as Machines that are still there, has to end first, and it is shown as waiting.

    With `again` it is planned again later and later, or after exactly the time that `after` names, each time.
    """

    reason: str
    again: bool = False
    after: timedelta | None = None
    waits: bool = False


def order_of(target: Target) -> tuple[bool, str, int]:
    """What sorts targets as they are carried out: by chain and stage, with the last chain behind all others."""
    return target.chain == FINALLY, target.chain, target.stage


def lane_fault(lane: str) -> str | None:
    """Why a lane's name can't be used, or None."""
    parts = lane.split("/")
    if len(parts) < 3 or not all(parts):
        return f"lane {lane!r} must be named PROVIDER/ACCOUNT/.../OPERATION"
    if any(character in "{}|" or character.isspace() for character in lane):
        return f"lane {lane!r} must not contain braces, bars or white space"
    if lane.endswith(":urgent"):
        return f"lane {lane!r} must not end in :urgent, which names the urgent side of a lane"
    return None


def release_lane(cluster: str) -> str:
    """The lane in which a cluster's objects are released."""
    return f"cluster/{cluster}/{RELEASE}"
