"""Layout of a plan: assigns targets to numbered stages, chain by chain, with the release as the last job.

Jobs of one stage have consecutive numbers, so that a stage is stored as a range.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from service.contract import VERSION, Event, JobRecord, Target, encode_job_record
from service.contract.targets import FINALLY, RELEASE, lane_fault, order_of, release_lane

MAX_STAGES = 200


class PlanLayout(NamedTuple):
    """Rows of jobs and of stages, as the script `plan` takes them.

    `finale` is the first stage of the chain `finally`, which waits for all other chains. `chains` includes that chain.
    """

    jobs: list[list[Any]]
    stages: list[list[Any]]
    release: int
    chains: int
    finale: int | None = None


class InvalidPlan(ValueError):
    """The targets do not make a valid plan; the deletion is held with this reason."""


def lay_out_plan(event: Event, targets: Iterable[Target], deadline: timedelta) -> PlanLayout:
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
            # Without other chains to wait for, the chain `finally` is an ordinary one.
            if begins and chains and target.chain == FINALLY:
                finale = len(stages)
            chains += begins
            first = int(begins and finale is None)
            stages.append([len(stages), [target.chain, len(jobs), 0, "-"], first])
            chain, level = target.chain, target.stage
        stage = stages[-1]
        stage[1][2] += 1
        jobs.append(job_row(target, stage[0], urgent, limit, first=stage[2]))
    if len(stages) > MAX_STAGES:
        raise InvalidPlan(f"a plan has at most {MAX_STAGES} stages, this one has {len(stages)}")
    last = len(stages)
    lane = release_lane(event.cluster)
    fault = lane_fault(lane)
    if fault:
        raise InvalidPlan(fault)
    alone = int(chains == 0)
    stages.append([last, [RELEASE, len(jobs), 1, "-"], alone])
    record = JobRecord(v=VERSION, stage=last, lane=lane, kind=RELEASE, target=deletion, urgent=urgent)
    jobs.append([encode_job_record(record), lane, urgent, 0, alone, 0])
    rows = [[index, " ".join(map(str, shape)), first] for index, shape, first in stages]
    return PlanLayout(jobs, rows, last, chains, finale)


def job_row(target: Target, stage: int, urgent: int, deadline_ms: int, *, first: int = 0) -> list[Any]:
    """A target's job as the scripts take it; `first` is 1 where its stage opens at once. Raises InvalidPlan."""
    _check(target)
    record = JobRecord(
        v=VERSION, stage=stage, lane=target.lane, kind=target.kind, target=target.id, strategy=target.strategy,
        urgent=urgent, data=target.data, incarnation=target.incarnation,
    )  # fmt: skip
    delay = int(target.after / timedelta(milliseconds=1)) if target.after else 0
    expires = deadline_ms if target.strategy == "best-effort" else 0
    return [encode_job_record(record), target.lane, urgent, delay, first, expires]


def _check(target: Target) -> None:
    if not target.chain or any(character.isspace() for character in target.chain):
        raise InvalidPlan(f"chain {target.chain!r} must be one word")
    if target.kind == RELEASE:
        raise InvalidPlan("the kind 'release' belongs to the last stage of every deletion")
    fault = lane_fault(target.lane)
    if fault:
        raise InvalidPlan(fault)
