"""The bench's report as it is read: the page that is written, and the table in the terminal.
The samples are made up, as in the tests of the report itself, whose lines are shown here."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from bench import markdown, report, table
from bench.contenders.all_contenders import CONTENDERS
from bench.rounds import Outcome
from bench.rows import ROWS, Row
from bench.wording import directions, with_ratio
from tests.unit.test_bench_report import TODAY, line_of, outcome_of, row

pytestmark = pytest.mark.long


def test_the_page_names_missing_contenders_and_old_figures() -> None:
    outcome = outcome_of("drain", knell=[20_000.0] * 5, bullmq=[5_000.0] * 5)
    outcome.absent["lateness.paced", "taskiq"] = "due times need a separate scheduler process"
    run = markdown.Run(
        date=TODAY,
        servers=markdown.Servers("valkey 9.1"),
        short=False,
        rows=[row("drain")],
        contenders=CONTENDERS,
        left_out={"asynq": "go not found on PATH"},
        outcome=outcome,
    )
    old = line_of("memory", outcome_of("memory", knell=[3.0] * 5))
    lines = [line_of("drain", outcome), old]
    page = markdown.page(run, lines, directions(ROWS), [contender.name for contender in CONTENDERS])
    assert "5,000 (4x)" in page
    assert "asynq: left out, go not found on PATH" in page
    assert "taskiq in lateness.paced: due times need a separate scheduler process" in page
    assert "figures of an earlier run: memory (2026-01-02, 5 rounds)." in page


def page_of(
    lines: list[report.ReportLine], outcome: Outcome, api: str | None = None, rows: Sequence[Row] = ROWS
) -> str:
    run = markdown.Run(TODAY, markdown.Servers("valkey 9.1", api), False, rows, CONTENDERS, {}, outcome)
    return markdown.page(run, lines, directions(ROWS), [contender.name for contender in CONTENDERS])


def first_cells(page: str) -> list[str]:
    return [text.split(" | ")[0].removeprefix("| ") for text in page.splitlines() if text.startswith("| ")]


def test_a_row_says_when_and_in_how_many_rounds_it_was_measured_where_that_is_not_what_the_head_says() -> None:
    old = "2025-12-24"
    lines = [
        line_of("enqueue", Outcome(7), old),
        line_of("drain", outcome_of("drain", knell=[9.0] * 5)),
        line_of("memory", Outcome(5), old),
        line_of("aws-clean", Outcome(5), old),
        line_of("aws-drain.p99", Outcome(5)),
    ]
    page = page_of(lines, Outcome(5), rows=[row("drain"), row("aws-drain.p99")])
    assert first_cells(page) == [
        "row",
        f"enqueue ({old}, 7 rounds)",
        "drain",
        f"memory ({old})",
        f"aws-clean ({old}, 1 round)",
        "aws-drain.p99 (1 round)",
    ]
    assert "- Rounds: 5, of aws-drain only 1, in which" in page
    kept = next(text for text in page.splitlines() if "Not run this time" in text)
    assert kept.endswith(f": enqueue ({old}, 7 rounds); memory ({old}, 5 rounds); aws-clean ({old}, 1 round).")


def test_the_spread_of_rounds_is_shown_only_for_rows_with_more_than_one() -> None:
    outcome = outcome_of("drain", knell=[9.0, 8.0, 7.0, 9.0, 9.0])
    outcome.samples["aws-drain", "knell", "p99"] = [3.0]
    assert page_of([], outcome).split("## Lowest and highest round")[1].strip() == "- `drain`: knell 7 to 9"


def shown(lines: list[report.ReportLine], wanted: int) -> str:
    console = Console(width=120, color_system=None, record=True, file=io.StringIO())
    table.show(console, lines, directions(ROWS), wanted)
    return console.export_text()


def test_the_terminal_shows_a_missed_goal_as_missed_and_rounds_that_are_fewer() -> None:
    outcome = outcome_of("aws-drain.p99", knell=[5.5], capa=[120.0])
    missed = shown([line_of("aws-drain.p99", outcome)], 5)
    assert "Medians of 5 rounds" in missed
    assert "< 5 s: not met" in missed
    assert "s, 1 round " in missed
    assert "21.8x" in missed.split("capa")[1]
    met = shown([line_of("aws-drain.p99", outcome_of("aws-drain.p99", knell=[4.5]))], 1)
    assert "< 5 s: met" in met
    assert "1 round," in met
    assert "s, 1 round " not in met


def test_the_page_shows_a_missed_goal_as_missed() -> None:
    page = page_of([line_of("aws-drain.p99", outcome_of("aws-drain.p99", knell=[5.5], capa=[110.0]))], Outcome(1))
    assert "| aws-drain.p99 | s | 5.5 | – | 110 (20x) | < 5 s | no |" in page


def test_a_figure_below_nothing_is_in_no_ratio_to_another() -> None:
    line = line_of("memory", outcome_of("memory", knell=[277.0] * 5, arq=[-7870.0] * 5, saq=[554.0] * 5))
    assert with_ratio(line, line["peers"]["arq"], "less") == "-7,870"
    assert with_ratio(line, line["peers"]["saq"], "less") == "554 (2x)"


def test_the_page_names_the_api_server_only_where_there_was_one() -> None:
    assert "API server: kube-apiserver v9, on 127.0.0.1." in page_of([], Outcome(5), "kube-apiserver v9")
    assert "API server" not in page_of([], Outcome(5))


def test_a_table_has_no_columns_of_contenders_without_a_figure() -> None:
    lines = [
        line_of("drain", outcome_of("drain", knell=[9.0] * 5, arq=[1.0] * 5)),
        line_of("quota.used", outcome_of("quota.used", knell=[99.0] * 5)),
        line_of("release", outcome_of("release", knell=[4.0] * 5, kopf=[5.0] * 5)),
        line_of("release.memory", outcome_of("release.memory", knell=[4.0] * 5, kopf=[5.0] * 5)),
        line_of("watch-memory", outcome_of("watch-memory", knell=[99.0] * 5, kubernetes_asyncio=[200.0] * 5)),
    ]
    page = page_of(lines, Outcome(5))
    heads = [text for text in page.splitlines() if text.startswith("| row ")]
    assert heads == [
        "| row | unit | knell | limit | arq | goal | met |",
        "| row | unit | knell | limit | kopf | goal | met |",
        "| row | unit | knell | limit | kubernetes-asyncio | goal | met |",
    ]
    quota = next(text for text in page.splitlines() if text.startswith("| quota.used "))
    assert page.index(heads[0]) < page.index(quota) < page.index(heads[1])


def test_contenders_that_miss_the_same_rows_for_the_same_reason_are_named_together() -> None:
    outcome = Outcome(5)
    for name in ("arq", "saq"):
        for trial in ("release", "watch-memory"):
            outcome.absent[trial, name] = "watches nothing"
    outcome.absent["release", "kubernetes-asyncio"] = "has no handlers"
    page = page_of([], outcome)
    assert "- arq, saq in release, watch-memory: watches nothing." in page
    assert "- kubernetes-asyncio in release: has no handlers." in page
