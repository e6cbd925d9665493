"""Strategies of the engine's state machine: few objects, lanes, workers and plans, so that they interact."""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from hypothesis import strategies as st

from service.contract import FINALLY, Blocked, Event, Gone, Pending, Refused, Target, Throttled, Verdict
from service.contract.targets import release_lane
from service.engine.late_targets import LateBounds
from workers.handlers.protocol import NotCleared

CLUSTER = "c1"
LANES = ("sim/a/one", "sim/a/two", "sim/b/one")
CHAINS = ("chain0", "chain1", FINALLY)
ALL_LANES = (*LANES, release_lane(CLUSTER))
WORKERS = ("w0", "w1", "w2")
PLANNERS = ("p0", "p1")
CAP = 2
SECONDS = (1, 6, 31, 61, 1000, -1, -61, -5000)

INDEX = st.integers(0, 30)
LANE = st.sampled_from(ALL_LANES)
WORKER = st.sampled_from(WORKERS)
PLANNER = st.sampled_from(PLANNERS)
LEASE = st.sampled_from((timedelta(seconds=10), timedelta(seconds=60)))


def event(number: int) -> Event:
    """Each object is either urgent or not, whoever publishes it."""
    return Event(
        cluster=CLUSTER, resource="things", uid=f"u{number}", name=f"n{number}", source="s", urgent=int(number != 2)
    )


class DrawnTarget(NamedTuple):
    """One target of a drawn plan."""

    chain: int
    stage: int
    lane: int
    best_effort: bool
    late: bool


PLAN = st.lists(
    st.builds(
        DrawnTarget,
        chain=st.sampled_from((0, 0, 1, 2)),
        stage=st.sampled_from((0, 0, 1)),
        lane=st.sampled_from((0, 0, 1, 2)),
        best_effort=st.booleans(),
        late=st.sampled_from((False, False, True)),
    ),
    max_size=5,
)
"""Mostly few jobs, and mostly in the same lane and stage: there they get into each other's way."""


class DrawnFind(NamedTuple):
    """A target that is found late; some of them are in the plans already."""

    number: int
    stage: int
    lane: int
    incarnation: str = ""


FIND = st.builds(
    DrawnFind,
    number=st.integers(0, 7),
    stage=st.sampled_from((0, 0, 1)),
    lane=st.sampled_from((0, 0, 1, 2)),
    incarnation=st.sampled_from(("", "", "1", "2")),
)
FINDS = st.lists(FIND, min_size=1, max_size=5)
SEVERAL_CHUNKS = st.lists(FIND, min_size=3, max_size=6, unique_by=lambda find: find.number)
"""More than one call adds."""


WIDE = LateBounds(per_call=2)
SMALL = LateBounds(per_call=2, per_look=2, targets=3, stages=4)
BOUNDS = st.sampled_from((SMALL, SMALL._replace(per_look=50)))
"""A few finds reach each of them."""


def late_targets(finds: list[DrawnFind]) -> list[Target]:
    return [
        Target(
            kind="thing",
            id=f"t{find.number}",
            lane=LANES[find.lane],
            chain=FINALLY,
            stage=find.stage,
            incarnation=find.incarnation,
        )
        for find in finds
    ]


def targets(pieces: list[DrawnTarget]) -> list[Target]:
    return [
        Target(
            kind="thing",
            id=f"t{number}",
            lane=LANES[piece.lane],
            chain=CHAINS[piece.chain],
            stage=piece.stage,
            strategy="best-effort" if piece.best_effort else "required",
            after=timedelta(seconds=30) if piece.late else timedelta(0),
        )
        for number, piece in enumerate(pieces)
    ]


VERDICTS: dict[str, Callable[[], Verdict | Exception | None]] = {
    "gone": Gone,
    "gone again": Gone,
    "check": lambda: Pending(timedelta(seconds=5), "accepted"),
    "check elsewhere": lambda: Pending(timedelta(seconds=5), "accepted", LANES[2], "ticket"),
    "throttled": Throttled,
    "throttled until": lambda: Throttled(timedelta(seconds=7)),
    "blocked": lambda: Blocked("a neighbour"),
    "blocked until": lambda: Blocked("a neighbour", timedelta(seconds=180)),
    "refused": lambda: Refused("not ours"),
    "failed": lambda: RuntimeError("broken"),
    "not cleared": lambda: NotCleared("paused"),
    "not cleared yet": lambda: NotCleared("paused", 3000),
    "unreadable": lambda: None,
}
VERDICT = st.sampled_from(sorted(VERDICTS))
EXACT = {"check": 5000, "check elsewhere": 5000, "throttled until": 7000, "blocked until": 180_000}
"""Waits that a verdict sets and that must be exact, in milliseconds."""
