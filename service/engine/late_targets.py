"""Targets found late: their layout, and the bounds of how many a deletion takes.

The script `append` compares them with those of the deletion and adds the new ones under the same plan number, before
the job that found them.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from service.contract import FINALLY, Target
from service.engine.plan_layout import InvalidPlan, job_row
from service.engine.script_arguments import CHUNK

MOST_PER_LOOK: Final = 5_000
"""Targets that one look adds: of more, the first in order; the next look finds the rest."""

MOST_TARGETS: Final = 20_000
MOST_STAGES: Final = 200
"""Late targets, and stages for them and for the jobs that found them, of one deletion in all."""


class LateBounds(NamedTuple):
    """Targets in one call of the script, of one look, and of a deletion in all, and stages of a deletion."""

    per_call: int = CHUNK
    per_look: int = MOST_PER_LOOK
    targets: int = MOST_TARGETS
    stages: int = MOST_STAGES


BOUNDS: Final = LateBounds()


def lay_out_late_targets(targets: Iterable[Target], urgent: int, deadline: timedelta) -> list[list[Any]]:
    """Rows of jobs in the order of their stages, each target once. Stages are numbered from 0; the script assigns the
    numbers of the deletion. Raises InvalidPlan."""
    limit = int(deadline / timedelta(milliseconds=1))
    rows: list[list[Any]] = []
    known: set[tuple[str, str, str]] = set()
    stages: dict[int, int] = {}
    for target in sorted(targets, key=lambda target: target.stage):
        if target.chain != FINALLY:
            raise InvalidPlan(
                f"a target that is found late belongs to the chain {FINALLY!r}, not {target.chain!r}: "
                f"{target.kind} {target.id}"
            )
        if target.identity not in known:
            known.add(target.identity)
            rows.append(job_row(target, stages.setdefault(target.stage, len(stages)), urgent, limit))
    if not rows:
        raise InvalidPlan("a verdict that more was found names no target")
    return rows


def bounds_reached(targets: int, stages: int, bounds: LateBounds = BOUNDS) -> str:
    """Why no more targets are added, with what to do; `targets` and `stages` are those that the deletion has."""
    return (
        f"more was found late than one deletion takes: it has {targets} of at most {bounds.targets} such targets and "
        f"{stages} of at most {bounds.stages} such stages. Something creates them again: remove the cause. "
        "`knell held drop` releases the object without them"
    )
