"""What the moves of a shard answer, and how it is read: each answer is one msgpack value of a known shape."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec


class DueLane(NamedTuple):
    name: str
    urgent: int
    background: int
    leased: int


class Look(NamedTuple):
    """What a look found: `upcoming` is 0 where nothing is known to come."""

    now: int
    upcoming: int
    paused: int
    lanes: list[DueLane]
    alone: list[str]


class TakenLane(NamedTuple):
    """Jobs of one lane under one fencing token; their records, as stored, stand in the same order."""

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


class Settled(NamedTuple):
    accepted: list[int]
    opening: int


class Reclaimed(NamedTuple):
    """Jobs, when there may be more of them (0: unknown), and the number of events whose planner is dead."""

    given_back: list[str]
    set_aside: list[str]
    next_end: int
    events: int


class Claimed(NamedTuple):
    """An entry ('': none), how many ms it has to wait (0: it is planned now), and how often a planner died alone with
    it."""

    entry: str
    wait: int
    fallen: int


class Reconsidered(NamedTuple):
    """The state in which a deletion was met, how much of it was brought forward, and the next job to look at, or -1."""

    state: str
    forward: int
    next: int


class Attended(NamedTuple):
    shards: int
    epoch: str
    lost: int


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(type=kind, strict=False).decode


read_look, read_taken = _decoder(Look), _decoder(Taken)
read_late: Callable[[bytes], tuple[list[list[str]], int]] = _decoder(tuple[list[list[str]], int])
read_published, read_planned = _decoder(list[Published]), _decoder(list[Planned])
read_reclaimed, read_attended, read_claimed = _decoder(Reclaimed), _decoder(Attended), _decoder(Claimed)
read_numbers, read_words = _decoder(list[int]), _decoder(list[str])
read_reconsidered: Callable[[bytes], list[Reconsidered]] = _decoder(list[Reconsidered])
read_recalled: Callable[[bytes], list[list[str]]] = _decoder(list[list[str]])
read_renewed: Callable[[bytes], tuple[int, list[int]]] = _decoder(tuple[int, list[int]])
read_woken: Callable[[bytes], tuple[str, int]] = _decoder(tuple[str, int])
read_stepped: Callable[[bytes], tuple[str, int, int]] = _decoder(tuple[str, int, int])
