"""Arranging a plan: targets into numbered stages, chain by chain, with the release as the last job of all.

Jobs of one stage have consecutive numbers, so a stage is stored as a range and needs no list of its own.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from service.contract import VERSION, Event, Record, Target, encode_record
from service.contract.targets import FINALLY, RELEASE, lane_fault, order_of, release_lane

MAX_STAGES = 200


class Arranged(NamedTuple):
    """A plan in the form that the `plan` move takes: rows of jobs and of stages.

    `finale` is the first stage that waits for all other chains, among which it is counted, too.
    """

    jobs: list[list[Any]]
    stages: list[list[Any]]
    release: int
    chains: int
    finale: int | None = None


class UnusablePlan(ValueError):
    """A planner's targets can't be arranged; the deletion is held with this reason."""


def arrange(event: Event, targets: Iterable[Target], deadline: timedelta) -> Arranged:
    """Give every target its number and stage."""
    ordered = sorted(targets, key=order_of)
    stages: list[list[Any]] = []
    jobs: list[list[Any]] = []
    chain: str | None = None
    level: int | None = None
    chains, finale = 0, None
    deletion, urgent = event.deletion, event.urgent
    limit = int(deadline / timedelta(milliseconds=1))
    for target in ordered:
        if target.chain != chain or target.stage != level:
            begins = target.chain != chain
            if stages and not begins:
                stages[-1][1][3] = str(len(stages))
            _check(target)
            # With nothing to wait for, the last chain is one like any other.
            if begins and chains and target.chain == FINALLY:
                finale = len(stages)
            chains += begins
            first = int(begins and finale is None)
            stages.append([len(stages), [target.chain, len(jobs), 0, "-"], first])
            chain, level = target.chain, target.stage
        stage = stages[-1]
        stage[1][2] += 1
        fault = lane_fault(target.lane)
        if fault:
            raise UnusablePlan(fault)
        record = Record(
            v=VERSION, stage=stage[0], lane=target.lane, kind=target.kind, target=target.id,
            strategy=target.strategy, urgent=urgent, data=target.data,
        )  # fmt: skip
        delay = int(target.after / timedelta(milliseconds=1)) if target.after else 0
        expires = limit if target.strategy == "best-effort" else 0
        jobs.append([encode_record(record), target.lane, urgent, delay, stage[2], expires])
    if len(stages) > MAX_STAGES:
        raise UnusablePlan(f"a plan has at most {MAX_STAGES} stages, this one has {len(stages)}")
    last = len(stages)
    lane = release_lane(event.cluster)
    fault = lane_fault(lane)
    if fault:
        raise UnusablePlan(fault)
    alone = int(chains == 0)
    stages.append([last, [RELEASE, len(jobs), 1, "-"], alone])
    record = Record(v=VERSION, stage=last, lane=lane, kind=RELEASE, target=deletion, urgent=urgent)
    jobs.append([encode_record(record), lane, urgent, 0, alone, 0])
    rows = [[index, " ".join(map(str, shape)), first] for index, shape, first in stages]
    return Arranged(jobs, rows, last, chains, finale)


def _check(target: Target) -> None:
    if not target.chain or any(character.isspace() for character in target.chain):
        raise UnusablePlan(f"chain {target.chain!r} must be one word")
    if target.kind == RELEASE:
        raise UnusablePlan("the kind 'release' belongs to the last stage of every deletion")
