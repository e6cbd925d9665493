"""A row of the report and the trial it takes its figure from; several rows may share one trial.

A trial measures one contender once and answers with named figures; the harness repeats and takes medians.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from bench.bench_server import BenchServer
from bench.contenders.protocol import Contender, Kind
from bench.goals import Goal

T = TypeVar("T")


@dataclass(frozen=True)
class RoundSize:
    """How much work one round is: in full, or a short form that only shows that everything runs."""

    short: bool = False

    def jobs(self, full: int) -> int:
        return max(500, full // 10) if self.short else full

    def pick(self, full: T, short: T) -> T:
        return short if self.short else full


Measure = Callable[[Contender, BenchServer, RoundSize], Mapping[str, float]]


@dataclass(frozen=True)
class Trial:
    """Run once per contender and round, on an empty server."""

    name: str
    measure: Measure
    most_rounds: int | None = None
    """Where a provider's clock sets the figure, rounds lie so close together that more of them tell nothing."""

    kinds: tuple[Kind, ...] | None = None
    """Of the contenders that can take part; others need not be installed for it. None: all."""

    def rounds(self, wanted: int) -> int:
        return wanted if self.most_rounds is None else min(wanted, self.most_rounds)


@dataclass(frozen=True)
class Row:
    """One line of the report; `figure` names the figure of the trial that it shows."""

    id: str
    what: str | Callable[[RoundSize], str]
    """In words; a function where they name how much was done, which a short round does less of."""
    unit: str
    trial: Trial
    figure: str
    better: Literal["more", "less"]
    goal: Goal | Callable[[RoundSize], Goal] | None = None
    """A function where what has to be reached depends on how much was done."""

    def goal_of(self, size: RoundSize) -> Goal | None:
        return self.goal(size) if callable(self.goal) else self.goal

    def words(self, size: RoundSize) -> str:
        return self.what if isinstance(self.what, str) else self.what(size)

    def chosen_by(self, only: str) -> bool:
        return self.id == only or self.id.startswith(f"{only}.")
