"""The report in the terminal: a block of lines per row, one per contender with Knell's advantage over it.

Long rather than wide, so that it can be read in a terminal of eighty columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.report import ReportLine
from bench.wording import DASH, advantage, number, rounds, verdict

_COLOURS = {"yes": "[green]met[/green]", "no": "[red]not met[/red]"}


def show(console: Console, report: Sequence[ReportLine], better: Mapping[str, str], wanted: int) -> None:
    """`wanted` is the number of rounds of the run; a row that had another number says so."""
    table = Table(title=f"Medians of {rounds(wanted)}, and how many times better Knell does")
    table.add_column("row", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    table.add_column("figure", justify="right", no_wrap=True)
    table.add_column("knell is", justify="right", no_wrap=True)
    table.add_column("goal")
    for line in report:
        judged = f"{line['goal']}: {_COLOURS[verdict(line)]}" if line["goal"] is not None else DASH
        table.add_row(f"[bold]{line['id']}[/bold]", "[bold]knell[/bold]", number(line["knell"]), "", judged)
        others = {"limit": line["limit"], **line["peers"]} if line["limit"] is not None else line["peers"]
        said = [line["unit"], *([rounds(line["rounds"])] if line["rounds"] != wanted else [])]
        beneath = [f"[dim]{', '.join(said)}[/dim]"]
        for name, figure in others.items():
            left = beneath.pop() if beneath else ""
            table.add_row(left, name, number(figure), advantage(line, figure, better.get(line["id"], "more")))
        for left in beneath:
            table.add_row(left)
        table.add_section()
    console.print(table)
