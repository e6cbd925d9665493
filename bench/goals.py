"""Goals as comparisons of figures: what Knell has to reach, in words for the report and as a test of the
numbers.

A goal without Knell's figure is not met; a comparison with a peer that took no part is named as not made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """The medians of one row."""

    knell: float | None
    limit: float | None
    peers: Mapping[str, float]


@dataclass(frozen=True)
class Clause:
    """One comparison; `holds` answers None where there is nothing to compare with."""

    text: str
    holds: Callable[[float, Figures], bool | None]


@dataclass(frozen=True)
class Judgement:
    goal: str
    met: bool


@dataclass(frozen=True)
class Goal:
    clauses: tuple[Clause, ...]

    def judge(self, figures: Figures) -> Judgement:
        """Met if at least one comparison could be made and none that could be made failed."""
        knell = figures.knell
        found = [(clause, None if knell is None else clause.holds(knell, figures)) for clause in self.clauses]
        texts = [
            clause.text if held is not None or knell is None else f"{clause.text} (not compared: left out)"
            for clause, held in found
        ]
        made = [held for _, held in found if held is not None]
        return Judgement("; ".join(texts), bool(made) and all(made))


def at_least_limit(factor: float) -> Clause:
    def holds(knell: float, figures: Figures) -> bool | None:
        return None if figures.limit is None else knell >= factor * figures.limit

    return Clause(f">= {factor:g} x limit", holds)


def at_most_limit(factor: float) -> Clause:
    def holds(knell: float, figures: Figures) -> bool | None:
        return None if figures.limit is None else knell <= factor * figures.limit

    return Clause(f"<= {factor:g} x limit", holds)


def less_than_above_limit(bound: float, unit: str) -> Clause:
    """For what adds to a limit that is measured in the same run."""

    def holds(knell: float, figures: Figures) -> bool | None:
        return None if figures.limit is None else knell - figures.limit < bound

    return Clause(f"< limit + {bound:g} {unit}", holds)


def at_least_best(factor: float, peers: Sequence[str], called: str) -> Clause:
    def holds(knell: float, figures: Figures) -> bool | None:
        there = [figures.peers[name] for name in peers if name in figures.peers]
        return knell >= factor * max(there) if there else None

    return Clause(f">= {factor:g} x {called}", holds)


def at_least_peer(factor: float, peer: str) -> Clause:
    return at_least_best(factor, [peer], peer)


def at_most_peer(factor: float, peer: str) -> Clause:
    def holds(knell: float, figures: Figures) -> bool | None:
        return knell <= factor * figures.peers[peer] if peer in figures.peers else None

    return Clause(f"<= {factor:g} x {peer}", holds)


def peer_near(peer: str, known: float, part: float, unit: str) -> Clause:
    """The peer itself, and not Knell: whether it does here what it is known to do elsewhere."""

    def holds(_: float, figures: Figures) -> bool | None:
        return abs(figures.peers[peer] - known) <= part * known if peer in figures.peers else None

    return Clause(f"{peer} within {part:.0%} of {known:g} {unit}", holds)


def below(bound: float, unit: str) -> Clause:
    return Clause(f"< {bound:g} {unit}", lambda knell, _: knell < bound)


def at_most(bound: float, unit: str) -> Clause:
    return Clause(f"<= {bound:g} {unit}", lambda knell, _: knell <= bound)


def at_least(bound: float, unit: str) -> Clause:
    return Clause(f">= {bound:g} {unit}", lambda knell, _: knell >= bound)


def goal(*clauses: Clause) -> Goal:
    return Goal(clauses)
