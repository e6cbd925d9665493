"""Turns an outcome into the rows of the report and keeps them as JSON; rows that were not run keep earlier
figures.

A row that was run is written anew as a whole, also where a contender has no figure any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from bench.contenders.protocol import Contender
from bench.goals import Figures
from bench.rounds import Outcome
from bench.rows.row import Row


class ReportLine(TypedDict):
    """One row of `latest.json`. A row without a goal has neither goal nor verdict."""

    id: str
    what: str
    unit: str
    knell: float | None
    peers: dict[str, float]
    limit: float | None
    goal: str | None
    met: bool | None
    rounds: int
    """Of which each figure is the median."""
    date: str
    """On which it was measured."""


def lines(rows: Iterable[Row], contenders: Sequence[Contender], outcome: Outcome, date: str) -> list[ReportLine]:
    return [_line(row, contenders, outcome, date) for row in rows]


def _line(row: Row, contenders: Sequence[Contender], outcome: Outcome, date: str) -> ReportLine:
    found = {
        contender.name: (contender.kind, figure)
        for contender in contenders
        if (figure := outcome.figure(row, contender.name)) is not None
    }
    figures = Figures(
        knell=next((_rounded(figure) for kind, figure in found.values() if kind == "knell"), None),
        limit=next((_rounded(figure) for kind, figure in found.values() if kind == "limit"), None),
        peers={name: _rounded(figure) for name, (kind, figure) in found.items() if kind not in ("knell", "limit")},
    )
    wanted = row.goal_of(outcome.size)
    judgement = wanted.judge(figures) if wanted is not None else None
    return ReportLine(
        id=row.id,
        what=row.words(outcome.size),
        unit=row.unit,
        knell=figures.knell,
        peers=dict(figures.peers),
        limit=figures.limit,
        goal=judgement.goal if judgement is not None else None,
        met=judgement.met if judgement is not None else None,
        rounds=row.trial.rounds(outcome.rounds),
        date=date,
    )


def _rounded(figure: float) -> float:
    """Six digits are more than any of these figures is good for."""
    return float(f"{figure:.6g}")


def merged(earlier: Iterable[ReportLine], new: Iterable[ReportLine], order: Sequence[str]) -> list[ReportLine]:
    """New rows replace earlier ones of the same id; the order is that of the row files, unknown rows last."""
    by_id = {line["id"]: line for line in earlier} | {line["id"]: line for line in new}
    known = [by_id.pop(id_) for id_ in order if id_ in by_id]
    return [*known, *by_id.values()]


def read(file: Path) -> list[ReportLine]:
    if not file.exists():
        return []
    kept: list[ReportLine] = json.loads(file.read_text())
    # A line that doesn't say when and how often it was measured, as short runs once wrote them, is not carried on.
    return [line for line in kept if ReportLine.__required_keys__ <= line.keys()]


def write(file: Path, report: Sequence[ReportLine]) -> None:
    """In one step: a run that is interrupted here leaves the earlier figures whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".tmp")
    half.write_text(json.dumps(report, indent=2) + "\n")
    half.replace(file)
