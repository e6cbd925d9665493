"""The report as a Markdown page: the table, how each contender was set up, how far rounds lay apart, who is
missing.

It names versions and the machine, because a figure without them says little.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contenders.protocol import Contender
from bench.report import ReportLine
from bench.rounds import Outcome
from bench.rows.row import Row
from bench.wording import DASH, number, rounds, verdict, with_ratio


@dataclass(frozen=True)
class Servers:
    """On what was measured; `api` is None where no row needed an API server."""

    redis: str
    api: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of the bench, as far as the page tells of it."""

    date: str
    servers: Servers
    short: bool
    rows: Sequence[Row]
    contenders: Sequence[Contender]
    left_out: Mapping[str, str]
    outcome: Outcome


def page(run: Run, report: Sequence[ReportLine], better: Mapping[str, str], peers: Sequence[str]) -> str:
    parts = [
        [f"# Bench of {run.date}", "", *_circumstances(run, report)],
        *(_table(run, part, better, peers) for part in _parts(report)),
        ["", "## Rows", "", *(f"- `{line['id']}` ({line['unit']}): {line['what']}." for line in report)],
        ["", "## Contenders", "", *(f"- {c.name} ({c.version()}): {c.settings}." for c in run.contenders)],
        _missing(run),
        _spread(run),
    ]
    return "\n".join(text for part in parts for text in part) + "\n"


def _circumstances(run: Run, report: Sequence[ReportLine]) -> list[str]:
    said = [
        f"Server: {run.servers.redis}, append-only file synced every second, noeviction, on 127.0.0.1.",
        *([f"API server: {run.servers.api}, on 127.0.0.1."] if run.servers.api is not None else []),
        f"Machine: {_processor()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}.",
        f"Rounds: {_rounds(run)}, in which the contenders alternate; each figure is the median.",
        "In brackets: how many times better Knell does.",
    ]
    if run.short:
        said.append("**A short run: it shows that everything works; its figures are not for comparison.**")
    if kept := _kept(run, report):
        said.append(f"Not run this time, figures of an earlier run: {'; '.join(kept)}.")
    return [f"- {line}" for line in said]


def _kept(run: Run, report: Sequence[ReportLine]) -> list[str]:
    """Those that were measured on one day in as many rounds are named together."""
    ran = {row.id for row in run.rows}
    ids: dict[tuple[str, int], list[str]] = {}
    for line in report:
        if line["id"] not in ran:
            ids.setdefault((line["date"], line["rounds"]), []).append(line["id"])
    return [f"{', '.join(found)} ({date}, {rounds(count)})" for (date, count), found in ids.items()]


def _rounds(run: Run) -> str:
    wanted = run.outcome.rounds
    fewer = {row.trial.name: count for row in run.rows if (count := row.trial.rounds(wanted)) < wanted}
    return ", ".join([str(wanted), *(f"of {name} only {count}" for name, count in fewer.items())])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _parts(report: Sequence[ReportLine]) -> list[list[ReportLine]]:
    """Rows that share peers stand in one table, which has no columns of those that took part in none of them."""
    parts: list[list[ReportLine]] = []
    there: set[str] = set()
    for line in report:
        if not parts or (there and line["peers"] and there.isdisjoint(line["peers"])):
            parts.append([])
            there = set()
        parts[-1].append(line)
        there |= line["peers"].keys()
    return parts


def _called(run: Run, line: ReportLine) -> str:
    """Its name, and what the head of the page says otherwise of when and in how many rounds it was measured."""
    apart = [line["date"]] if line["date"] != run.date else []
    apart += [rounds(line["rounds"])] if line["rounds"] != run.outcome.rounds else []
    return f"{line['id']} ({', '.join(apart)})" if apart else line["id"]


def _table(run: Run, report: Sequence[ReportLine], better: Mapping[str, str], peers: Sequence[str]) -> list[str]:
    there = [name for name in peers if any(name in line["peers"] for line in report)]
    head = ["row", "unit", "knell", "limit", *there, "goal", "met"]
    rows = ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for line in report:
        direction = better.get(line["id"], "more")
        others = [line["limit"], *(line["peers"].get(name) for name in there)]
        cells = [
            _called(run, line),
            line["unit"],
            number(line["knell"]),
            *(with_ratio(line, figure, direction) for figure in others),
            line["goal"] or DASH,
            verdict(line),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _missing(run: Run) -> list[str]:
    said = [f"- {name}: left out, {reason}." for name, reason in run.left_out.items()]
    said += [f"- {', '.join(names)} in {', '.join(trials)}: {reason}." for reason, trials, names in _absent(run)]
    said += [
        f"- {name} in {trial}: failed, {reason.splitlines()[0]}."
        for (trial, name), reason in run.outcome.failures.items()
    ]
    return ["", "## Not measured", "", *said] if said else []


def _absent(run: Run) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Why, in which trials, and who: those who miss the same for the same reason are named together."""
    trials: dict[tuple[str, str], list[str]] = {}
    for (trial, name), reason in run.outcome.absent.items():
        trials.setdefault((name, reason), []).append(trial)
    names: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (name, reason), missed in trials.items():
        names.setdefault((reason, tuple(missed)), []).append(name)
    return [(reason, missed, who) for (reason, missed), who in names.items()]


def _spread(run: Run) -> list[str]:
    said = [
        f"- `{row.id}`: {', '.join(ranges)}"
        for row in run.rows
        if row.trial.rounds(run.outcome.rounds) > 1
        and (
            ranges := [
                f"{contender.name} {number(min(values))} to {number(max(values))}"
                for contender in run.contenders
                if (values := run.outcome.of(row, contender.name))
            ]
        )
    ]
    return ["", "## Lowest and highest round", "", *said] if said else []
