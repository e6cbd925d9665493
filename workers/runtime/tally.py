"""What this process has done since it started, as plain numbers.
Whoever shows them reads them here; counting costs an addition and knows nothing of who looks."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """`settled` counts accepted settlements by outcome, `late` those that changed nothing any more."""

    taken: int = 0
    planned: int = 0
    held: int = 0
    late: int = 0
    settled: Counter[str] = field(default_factory=Counter)
