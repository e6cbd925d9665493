"""Replies of the scripts of a shard and their decoders: each reply is one msgpack value of a known type."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec


class DueLane(NamedTuple):
    name: str
    urgent: int
    background: int
    leased: int


class DueLanes(NamedTuple):
    """`upcoming` is when the next lane is due, 0 where none is known."""

    now: int
    upcoming: int
    paused: int
    lanes: list[DueLane]
    alone: list[str]


class TakenLane(NamedTuple):
    """Jobs of one lane under one fencing token, and their stored records in the same order."""

    lane: str
    fence: int
    jobs: list[str]
    records: list[str]


class Taken(NamedTuple):
    now: int
    lanes: list[TakenLane]


class Published(NamedTuple):
    state: str
    entry: str


class Planned(NamedTuple):
    state: str
    number: int


class Appended(NamedTuple):
    """One step of an append. `added` is the number of targets so far; `targets` and `stages` are those of the deletion
    that were found late, and `opening` the number of stages that open now."""

    state: str
    added: int
    targets: int
    stages: int
    opening: int


class SettledBatch(NamedTuple):
    accepted: list[int]
    opening: int


class Reclaimed(NamedTuple):
    """Jobs, the time of the next possible call (0: unknown), and the number of events whose planner is dead."""

    given_back: list[str]
    set_aside: list[str]
    next_end: int
    events: int


class Claimed(NamedTuple):
    """An entry ('': none), how long it must wait in ms (0: it is planned now), and how many planners died while
    planning it alone."""

    entry: str
    wait: int
    fallen: int


class RecheckReply(NamedTuple):
    """The state of a deletion, how many of its jobs are due earlier now, and the next job to check, or -1."""

    state: str
    forward: int
    next: int


class EpochReply(NamedTuple):
    shards: int
    epoch: str
    lost: int


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(type=kind, strict=False).decode


read_due_lanes, read_taken = _decoder(DueLanes), _decoder(Taken)
read_settled: Callable[[bytes], tuple[list[list[str]], int]] = _decoder(tuple[list[list[str]], int])
read_published, read_planned = _decoder(list[Published]), _decoder(list[Planned])
read_reclaimed, read_epoch, read_claimed = _decoder(Reclaimed), _decoder(EpochReply), _decoder(Claimed)
read_appended: Callable[[bytes], Appended] = _decoder(Appended)
read_numbers, read_words = _decoder(list[int]), _decoder(list[str])
read_recheck: Callable[[bytes], list[RecheckReply]] = _decoder(list[RecheckReply])
read_fields: Callable[[bytes], list[list[str]]] = _decoder(list[list[str]])
read_renewed: Callable[[bytes], tuple[int, list[int]]] = _decoder(tuple[int, list[int]])
read_state_and_count: Callable[[bytes], tuple[str, int]] = _decoder(tuple[str, int])
read_step: Callable[[bytes], tuple[str, int, int]] = _decoder(tuple[str, int, int])
