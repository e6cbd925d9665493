"""The bench's report: which fields a row has, how goals are judged, what a partial run leaves alone.
No figure is measured here; the samples are made up, and everything that turns them into a report is real."""

import json
from pathlib import Path

import click
import pytest

from bench import report
from bench.__main__ import RESULTS, chosen, kept_as
from bench.contenders.all_contenders import CONTENDERS, PYTHON_PEERS
from bench.goals import Figures, at_least_best, at_least_limit, at_least_peer, at_most, below, goal
from bench.rounds import Outcome, rotated, trials_of
from bench.rows import ROWS, Row
from bench.rows.row import RoundSize

pytestmark = pytest.mark.long

FIELDS = ["id", "what", "unit", "knell", "peers", "limit", "goal", "met", "rounds", "date"]
TODAY = "2026-01-02"


def row(id_: str) -> Row:
    return next(row for row in ROWS if row.id == id_)


def outcome_of(id_: str, **samples: list[float]) -> Outcome:
    """Contender names are given with underscores."""
    outcome = Outcome(5)
    for name, values in samples.items():
        outcome.samples[row(id_).trial.name, name.replace("_", "-"), row(id_).figure] = values
    return outcome


def line_of(id_: str, outcome: Outcome, date: str = TODAY) -> report.ReportLine:
    (line,) = report.lines([row(id_)], CONTENDERS, outcome, date)
    return line


def test_every_row_has_exactly_the_named_fields(tmp_path: Path) -> None:
    file = tmp_path / "results" / "latest.json"
    report.write(file, report.lines(ROWS, CONTENDERS, Outcome(5), TODAY))
    written = json.loads(file.read_text())
    assert [list(line) for line in written] == [FIELDS] * len(ROWS)
    assert [line["id"] for line in written] == [row.id for row in ROWS]


def test_row_ids_are_unique_and_cover_what_is_promised() -> None:
    ids = [row.id for row in ROWS]
    assert len(set(ids)) == len(ids)
    assert {"enqueue", "drain", "cpu", "commands", "memory", "parked.memory", "parked.time"} <= set(ids)
    assert {f"lateness.{kind}.{part}" for kind in ("paced", "burst") for part in ("p50", "p99")} <= set(ids)
    assert {"release", "release.p50", "release.p99", "release.cpu", "release.memory", "watch-memory"} <= set(ids)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    line = line_of("drain", outcome_of("drain", knell=[9.0, 1.0, 5.0, 70.0, 4.0], arq=[3.0, 1.0, 2.0, 5.0, 4.0]))
    assert line["knell"] == 5.0
    assert line["peers"] == {"arq": 3.0}


def test_a_contender_that_missed_a_round_has_no_figure() -> None:
    line = line_of("drain", outcome_of("drain", knell=[9.0] * 5, arq=[3.0] * 4))
    assert line["peers"] == {}


def test_knell_and_the_limit_are_not_among_the_peers() -> None:
    line = line_of("drain", outcome_of("drain", knell=[9.0] * 5, raw=[8.0] * 5, bullmq=[2.0] * 5))
    assert (line["knell"], line["limit"], line["peers"]) == (9.0, 8.0, {"bullmq": 2.0})


@pytest.mark.parametrize(
    ("knell", "met"),
    [
        (24_000.0, True),
        (23_999.0, False),  # not twelve times dramatiq-32, the best Python peer
    ],
)
def test_the_drain_goal_is_judged_against_the_best_python_peer(knell: float, met: bool) -> None:
    samples = outcome_of(
        "drain",
        knell=[knell] * 5,
        raw=[25_000.0] * 5,
        arq=[900.0] * 5,
        dramatiq=[1_600.0] * 5,
        dramatiq_32=[2_000.0] * 5,
        bullmq=[7_000.0] * 5,
        asynq=[4_000.0] * 5,
    )
    assert line_of("drain", samples)["met"] is met


@pytest.mark.parametrize(
    ("id_", "knell", "raw", "met"),
    [
        ("enqueue", 50.0, 100.0, True),
        ("enqueue", 49.0, 100.0, False),
        ("lateness.paced.p50", 9.9, None, True),
        ("lateness.paced.p50", 10.0, None, False),
        ("lateness.paced.p99", 49.9, None, True),
        ("lateness.paced.p99", 50.0, None, False),
        ("parked.time", 1.5, None, True),
        ("parked.time", 1.51, None, False),
    ],
)
def test_each_goal_turns_at_its_bound(id_: str, knell: float, raw: float | None, met: bool) -> None:
    samples = {"knell": [knell] * 5} | ({"raw": [raw] * 5} if raw is not None else {})
    assert line_of(id_, outcome_of(id_, **samples))["met"] is met


@pytest.mark.parametrize(
    ("id_", "knell", "kopf", "met"),
    [
        ("release", 4.0, 4.0, True),
        ("release", 4.1, 4.0, False),
        ("release.cpu", 2.6, 4.0, True),
        ("release.cpu", 2.7, 4.0, False),
        ("release.memory", 110.0, 100.0, True),
        ("release.memory", 111.0, 100.0, False),
    ],
)
def test_the_release_goals_turn_at_their_part_of_kopfs_figure(id_: str, knell: float, kopf: float, met: bool) -> None:
    assert line_of(id_, outcome_of(id_, knell=[knell] * 5, kopf=[kopf] * 5, bare=[0.1] * 5))["met"] is met


@pytest.mark.parametrize(("knell", "met"), [(8.9, True), (9.0, False), (3.0, True)])
def test_the_webhook_may_add_less_than_five_milliseconds_to_the_limit_of_the_same_run(knell: float, met: bool) -> None:
    samples = outcome_of("admission.p99", knell=[knell] * 5, no_admission=[4.0] * 5, policy=[4.5] * 5)
    line = line_of("admission.p99", samples)
    assert (line["limit"], line["peers"], line["goal"]) == (4.0, {"policy": 4.5}, "< limit + 5 ms")
    assert line["met"] is met


def test_only_contenders_that_can_take_part_are_installed() -> None:
    trial, _ = trials_of(row for row in ROWS if row.id.startswith("admission"))
    assert {one.name for one in CONTENDERS if trial.kinds and one.kind in trial.kinds} >= {
        "knell",
        "no-admission",
        "policy",
    }
    assert not {"python", "other", "watcher", "collector"} & set(trial.kinds or ())


def test_a_release_that_kopf_took_no_part_in_meets_nothing() -> None:
    line = line_of("release", outcome_of("release", knell=[4.0] * 5))
    assert (line["goal"], line["met"]) == ("<= 1 x kopf (not compared: left out)", False)


def test_the_bare_loop_is_the_limit_where_it_takes_part() -> None:
    line = line_of("release", outcome_of("release", knell=[4.0] * 5, kopf=[5.0] * 5, bare=[1.0] * 5))
    assert (line["limit"], line["peers"]) == (1.0, {"kopf": 5.0})


@pytest.mark.parametrize(("knell", "met"), [(149.9, True), (150.0, False)])
def test_listed_objects_must_fit_into_150_megabytes_whatever_a_peer_needs(knell: float, met: bool) -> None:
    samples = outcome_of("watch-memory", knell=[knell] * 5, kubernetes_asyncio=[900.0] * 5)
    assert line_of("watch-memory", samples)["met"] is met


def test_who_only_watches_is_no_python_peer_of_the_job_systems() -> None:
    assert {"arq", "dramatiq-32"} <= set(PYTHON_PEERS)
    assert not {"kopf", "bare", "kubernetes-asyncio"} & set(PYTHON_PEERS)


def test_a_goal_without_knells_figure_is_not_met() -> None:
    line = line_of("lateness.paced.p50", outcome_of("lateness.paced.p50", bullmq=[45.0] * 5))
    assert line["knell"] is None
    assert line["met"] is False


def test_a_row_without_a_goal_has_no_verdict() -> None:
    line = line_of("memory", outcome_of("memory", knell=[50.0] * 5))
    assert (line["goal"], line["met"]) == (None, None)


def test_a_comparison_with_a_missing_peer_is_named_as_not_made() -> None:
    both = goal(at_least_limit(0.5), at_least_peer(2.5, "bullmq"))
    judged = both.judge(Figures(knell=10.0, limit=10.0, peers={}))
    assert judged.met
    assert judged.goal == ">= 0.5 x limit; >= 2.5 x bullmq (not compared: left out)"


def test_a_goal_of_which_nothing_could_be_compared_is_not_met() -> None:
    assert not goal(at_least_best(12, PYTHON_PEERS, "best")).judge(Figures(10.0, None, {})).met


def test_one_failed_comparison_fails_the_goal() -> None:
    assert not goal(below(10, "ms"), at_most(1, "ms")).judge(Figures(5.0, None, {})).met


def test_a_partial_run_keeps_the_other_rows(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    order = [row.id for row in ROWS]
    first = [
        line_of("enqueue", outcome_of("enqueue", knell=[1.0] * 5)),
        line_of("drain", outcome_of("drain", knell=[2.0] * 5, arq=[1.0] * 5)),
        line_of("memory", outcome_of("memory", knell=[3.0] * 5)),
    ]
    report.write(file, report.merged(report.read(file), first, order))
    again = [line_of("drain", outcome_of("drain", knell=[20.0] * 5))]
    report.write(file, report.merged(report.read(file), again, order))
    kept = report.read(file)
    assert [line["id"] for line in kept] == ["enqueue", "drain", "memory"]
    assert [line["knell"] for line in kept] == [1.0, 20.0, 3.0]
    # The row that was run is new as a whole: a peer that took no part has no old figure in it.
    assert kept[1]["peers"] == {}
    assert kept[0] == first[0]


def test_only_chooses_a_row_or_a_family_of_rows() -> None:
    assert [row.id for row in chosen("drain")] == ["drain"]
    assert [row.id for row in chosen("lateness.paced")] == ["lateness.paced.p50", "lateness.paced.p99"]
    with pytest.raises(click.BadParameter, match="drian"):
        chosen("drian")


def test_rows_of_one_trial_are_measured_together() -> None:
    assert [trial.name for trial in trials_of([row("drain"), row("cpu"), row("memory")])] == ["drain"]


def test_contenders_take_turns_at_coming_first() -> None:
    firsts = [rotated(CONTENDERS, round_)[0].name for round_ in range(len(CONTENDERS))]
    assert sorted(firsts) == sorted(contender.name for contender in CONTENDERS)
    assert all(len(rotated(CONTENDERS, round_)) == len(CONTENDERS) for round_ in range(5))


@pytest.mark.parametrize(("short", "rounds", "name"), [(False, 5, "latest"), (True, 5, "short"), (False, 4, "short")])
def test_only_full_runs_of_five_rounds_become_the_latest(short: bool, rounds: int, name: str) -> None:
    assert kept_as(short, rounds) == name


def test_a_figure_keeps_its_rounds_and_date_while_other_rows_are_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    report.write(file, [line_of("aws-clean", Outcome(5), "2025-12-24"), line_of("drain", Outcome(5), "2025-12-24")])
    again = report.merged(report.read(file), [line_of("drain", Outcome(6))], [row.id for row in ROWS])
    assert {line["id"]: (line["rounds"], line["date"]) for line in again} == {
        "drain": (6, TODAY),
        "aws-clean": (1, "2025-12-24"),
    }


def test_a_line_that_says_not_how_often_it_was_measured_is_not_carried_on(tmp_path: Path) -> None:
    file = tmp_path / "short.json"
    silent, told = dict(line_of("drain", Outcome(5))), line_of("cpu", Outcome(5))
    del silent["rounds"]
    file.write_text(json.dumps([silent, told]))
    assert [line["id"] for line in report.read(file)] == ["cpu"]


def test_the_kept_figures_all_say_when_and_how_often_they_were_measured() -> None:
    kept = json.loads((RESULTS / "latest.json").read_text())
    assert report.read(RESULTS / "latest.json") == kept
    assert all(line["rounds"] >= row(line["id"]).trial.rounds(5) for line in kept)


@pytest.mark.parametrize("one", [one for one in ROWS if not isinstance(one.what, str)], ids=lambda one: one.id)
def test_a_row_says_how_much_was_done_in_a_short_run_and_not_what_a_full_one_does(one: Row) -> None:
    assert one.words(RoundSize()) != one.words(RoundSize(short=True))
    (line,) = report.lines([one], CONTENDERS, Outcome(1, RoundSize(short=True)), TODAY)
    assert line["what"] == one.words(RoundSize(short=True))
