"""Counters of a worker process since its start, exported as metrics."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class WorkerCounters:
    """`settled` counts accepted settlements by outcome, `late` those rejected because the lease was lost."""

    taken: int = 0
    planned: int = 0
    held: int = 0
    late: int = 0
    settled: Counter[str] = field(default_factory=Counter)
