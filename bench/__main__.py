"""`python -m bench`: runs the rows, prints the table and writes it to `bench/results`.

Only a full run of at least five rounds changes `latest.json`; anything less goes to `short.json` beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench import markdown, report, rounds, table
from bench.bench_server import BenchServer
from bench.contenders.all_contenders import CONTENDERS, Contender
from bench.environments import EnvironmentFailedError
from bench.progress import TurnProgress
from bench.rows import ROWS, Row
from bench.rows.row import RoundSize, Trial
from bench.wording import directions

RESULTS: Final = Path(__file__).resolve().parent / "results"
FULL_ROUNDS: Final = 5


def chosen(only: str | None) -> list[Row]:
    rows = [row for row in ROWS if only is None or row.chosen_by(only)]
    if not rows:
        raise click.BadParameter(f"no row {only!r}; there are {', '.join(row.id for row in ROWS)}", param_hint="--only")
    return rows


def kept_as(short: bool, count: int) -> str:
    """A figure in `latest` is the median of five full rounds; nothing less may take its place."""
    return "short" if short or count < FULL_ROUNDS else "latest"


def prepared(console: Console, trials: Sequence[Trial]) -> tuple[list[Contender], dict[str, str]]:
    """Those that can take part here, and why the others cannot. Whoever no trial is for is not installed: it says
    itself that it lacks what is measured."""
    there: list[Contender] = []
    left_out: dict[str, str] = {}
    for contender in CONTENDERS:
        reason = contender.left_out()
        if reason is None and any(trial.kinds is None or contender.kind in trial.kinds for trial in trials):
            try:
                contender.prepare(lambda doing: console.print(f"{doing} ..."))
            except EnvironmentFailedError as failure:
                reason = str(failure)
        if reason is None:
            there.append(contender)
        else:
            left_out[contender.name] = reason
            console.print(f"[yellow]{contender.name} is left out: {reason}[/yellow]")
    return there, left_out


@click.command()
@click.option("--only", metavar="ROW", help="One row, or all rows whose name begins with it: drain, lateness.paced.")
@click.option("--rounds", "round_count", type=click.IntRange(min=1), default=None, help="Rounds; five if not short.")
@click.option("--short", is_flag=True, help="One small round: shows that everything runs, not how fast it is.")
def main(only: str | None, round_count: int | None, short: bool) -> None:
    """Measure Knell, its peers and the raw limit side by side on the same servers."""
    rows = chosen(only)
    console = Console()
    trials = rounds.trials_of(rows)
    contenders, left_out = prepared(console, trials)
    count = round_count if round_count is not None else 1 if short else FULL_ROUNDS
    turns = sum(trial.rounds(count) for trial in trials) * len(contenders)
    with BenchServer(console.print) as server, TurnProgress(console, turns) as progress:
        outcome = rounds.run(trials, contenders, server, RoundSize(short), count, progress.turn)
        servers = markdown.Servers(server.version, server.api_version)

    name = kept_as(short, count)
    kept = RESULTS / f"{name}.json"
    date = datetime.now(UTC).date().isoformat()
    lines = report.merged(report.read(kept), report.lines(rows, contenders, outcome, date), [row.id for row in ROWS])
    report.write(kept, lines)
    peers = [contender.name for contender in CONTENDERS]
    run = markdown.Run(date, servers, name == "short", rows, contenders, left_out, outcome)
    page = RESULTS / f"{date if name == 'latest' else name}.md"
    page.write_text(markdown.page(run, lines, directions(ROWS), peers))

    ran = {row.id for row in rows}
    table.show(console, [line for line in lines if line["id"] in ran], directions(ROWS), count)
    for (trial, contender), reason in outcome.failures.items():
        console.print(f"[red]{contender} failed in {trial}:[/red] {reason}", markup=True)
    console.print(f"Written to {page.relative_to(RESULTS.parents[1])} and {kept.relative_to(RESULTS.parents[1])}.")
    if outcome.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
