"""Runs trials in rounds in which the contenders alternate, and keeps every sample for the medians.

The order is rotated from round to round, so that no contender always comes first or always after the same
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, ContenderFailedError, NotSupportedError
from bench.rows.row import RoundSize, Row, Trial


@dataclass(frozen=True)
class Turn:
    """One contender's turn at one trial, for the progress shown."""

    trial: str
    round: int
    rounds: int
    contender: str


@dataclass
class Outcome:
    """Samples by trial, contender and figure; and why some are missing."""

    rounds: int
    size: RoundSize = field(default_factory=RoundSize)
    samples: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    absent: dict[tuple[str, str], str] = field(default_factory=dict)
    """Trial and contender: what the contender lacks."""
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, trial: Trial, contender: Contender, figures: Mapping[str, float]) -> None:
        for figure, value in figures.items():
            self.samples.setdefault((trial.name, contender.name, figure), []).append(value)

    def of(self, row: Row, contender: str) -> list[float]:
        return self.samples.get((row.trial.name, contender, row.figure), [])

    def figure(self, row: Row, contender: str) -> float | None:
        """The median, or None if a round is missing: fewer rounds would be another kind of figure."""
        values = self.of(row, contender)
        return median(values) if len(values) == row.trial.rounds(self.rounds) else None


def trials_of(rows: Iterable[Row]) -> list[Trial]:
    """In the order of the rows, each once."""
    return list(dict.fromkeys(row.trial for row in rows))


def rotated(contenders: Sequence[Contender], round_: int) -> list[Contender]:
    start = round_ % len(contenders) if contenders else 0
    return [*contenders[start:], *contenders[:start]]


def run(
    trials: Sequence[Trial],
    contenders: Sequence[Contender],
    server: BenchServer,
    size: RoundSize,
    rounds: int,
    on_turn: Callable[[Turn], None],
) -> Outcome:
    outcome = Outcome(rounds, size)
    for trial in trials:
        count = trial.rounds(rounds)
        for round_ in range(count):
            for contender in rotated(contenders, round_):
                on_turn(Turn(trial.name, round_ + 1, count, contender.name))
                place = (trial.name, contender.name)
                if place in outcome.absent or place in outcome.failures:
                    continue
                server.empty()
                try:
                    outcome.add(trial, contender, trial.measure(contender, server, size))
                except NotSupportedError as lacking:
                    outcome.absent[place] = str(lacking)
                except ContenderFailedError as failure:
                    outcome.failures[place] = str(failure)
    return outcome
