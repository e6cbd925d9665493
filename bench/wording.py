"""Figures as text, the same in the terminal and in the written report: short numbers, and Knell's ratio to others.

A ratio is always Knell's advantage: 2x means twice the rate, or half the cost."""

from __future__ import annotations

from bench.report import ReportLine
from bench.rows.row import Row

DASH = "–"


def number(figure: float | None) -> str:
    if figure is None:
        return DASH
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"


def advantage(line: ReportLine, other: float | None, better: str) -> str:
    knell = line["knell"]
    # Memory that was measured may have shrunk; a ratio of that says nothing.
    if knell is None or other is None or knell <= 0 or other <= 0:
        return ""
    ratio = knell / other if better == "more" else other / knell
    return f"{number(ratio)}x"


def with_ratio(line: ReportLine, other: float | None, better: str) -> str:
    ratio = advantage(line, other, better)
    return f"{number(other)} ({ratio})" if ratio else number(other)


def rounds(count: int) -> str:
    return f"{count} round{'s' if count != 1 else ''}"


def verdict(line: ReportLine) -> str:
    return {True: "yes", False: "no", None: DASH}[line["met"]]


def directions(rows: tuple[Row, ...]) -> dict[str, str]:
    return {row.id: row.better for row in rows}
