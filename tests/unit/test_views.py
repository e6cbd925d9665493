"""Views computed from stored data: limits extrapolated to now, and the timeline of one deletion."""

from datetime import UTC, datetime, timedelta

import pytest

from service.engine.views.deletions import deletion_view
from service.engine.views.jobs import is_job
from service.engine.views.limits import limits_of
from service.engine.views.timeline import TimelineEntry, bounds, entries_about, merge_repeats

NOW = 1_900_000_000_000


def stored(**fields: object) -> dict[str, str]:
    base = {"capacity": 100, "per": 10_000, "kind": "bucket", "tokens": 0, "at": NOW, "factor": 1, "factor_at": NOW}
    return {f"deletes|{name}": str(value) for name, value in (base | fields).items()}


@pytest.mark.parametrize(
    ("fields", "after", "tokens", "factor"),
    [
        ({"tokens": 40}, 0, 40, 1),
        ({"tokens": 40}, 1_000, 50, 1),
        ({"tokens": 40}, 60_000, 100, 1),
        ({"tokens": 40}, -5_000, 40, 1),
        ({"factor": 0.5}, 30_000, 100, 0.6),
        ({"tokens": 40, "learned": 2.5}, 1_000, 65, 1),
        ({"kind": "window", "tokens": 3}, 9_999, 3, 1),
        ({"kind": "window", "tokens": 3}, 10_000, 100, 1),
        ({"kind": "window", "ramp": 1, "from": NOW}, 5_000, 50, 1),
    ],
)
def test_a_limit_is_shown_as_the_next_move_will_find_it(
    fields: dict[str, object], after: int, tokens: float, factor: float
) -> None:
    (allowance,) = limits_of("sim/acct", stored(**fields), NOW + after)
    assert allowance.tokens == pytest.approx(tokens)
    assert allowance.factor == pytest.approx(factor)


def test_what_was_learned_is_shown_and_what_was_refused_until_it_is_forgotten() -> None:
    (fresh,) = limits_of("p", stored(), NOW)
    assert (fresh.learned, fresh.refused) == (1, None)
    grown = stored(learned=1.25, refused=1.5625, refused_until=NOW + 5_000)
    (known,) = limits_of("p", grown, NOW)
    assert (known.learned, known.refused) == (1.25, 1.562)
    (forgotten,) = limits_of("p", grown, NOW + 5_001)
    assert (forgotten.learned, forgotten.refused) == (1.25, None)


def test_a_pause_is_shown_while_it_lasts() -> None:
    (paused,) = limits_of("p", stored(pause=NOW + 5_000), NOW)
    assert paused.paused_until is not None
    (over,) = limits_of("p", stored(pause=NOW - 1), NOW)
    assert over.paused_until is None


def test_limits_that_only_share_out_a_lane_are_not_shown() -> None:
    record = {name.replace("deletes", "lane sim/acct/x"): value for name, value in stored().items()}
    assert limits_of("p", record, NOW) == []


def test_a_spoilt_record_is_shown_as_far_as_it_goes() -> None:
    (odd,) = limits_of("p", {**stored(), "deletes|tokens": "many"}, NOW)
    assert odd.tokens == 0
    view = deletion_view(0, "c/r/u/1", {"state": "running", "stage.0": "main", "stage.x": "?", "planned_at": "soon"})
    assert (view.jobs, view.planned_at, view.state) == (0, None, "running")


def test_an_audit_entry_speaks_only_of_the_deletion_it_names() -> None:
    jobs = "c/r/u/1#1.0 c/r/u/11#1.0 xc/r/u/1#1.0 c/r/u/1#1.12"
    taken = entries_about("c/r/u/1", f"{NOW}-0", {"entry": "intent", "worker": "w", "lane": "a/b/c", "jobs": jobs})
    assert [one.job for one in taken] == ["c/r/u/1#1.0", "c/r/u/1#1.12"]
    ended = entries_about("c/r/u/1", f"{NOW}-0", {"entry": "outcome", "worker": "w", "lane": "l", "gone called": jobs})
    assert [(one.job, one.what) for one in ended] == [("c/r/u/1#1.0", "gone called"), ("c/r/u/1#1.12", "gone called")]


@pytest.mark.parametrize(
    ("subject", "concerns"),
    [
        ("c/r/u/1", True),
        ("deletion:c/r/u/1", True),
        ("job:c/r/u/1#1.0", True),
        ("c/r/u/1#2.7", True),
        ("c/r/u/11", False),
        ("c/r/u/11#1.0", False),
        ("sim/acct/delete", False),
        ("event:1-1", False),
    ],
)
def test_a_decision_concerns_a_deletion_and_its_jobs(subject: str, concerns: bool) -> None:
    found = entries_about("c/r/u/1", f"{NOW}-0", {"entry": "decision", "what": "held", "id": subject, "why": "so"})
    assert bool(found) == concerns


def test_the_audit_is_looked_at_in_the_deletions_lifetime_whatever_the_clock_did() -> None:
    record = {"published_at": str(NOW), "done_at": str(NOW + 60_000), "entry": f"{NOW - 3_600_000}-0"}
    low, high = bounds(deletion_view(0, "c/r/u/1", record), int(timedelta(hours=1) / timedelta(milliseconds=1)))
    assert low <= NOW - 3_600_000
    assert int(high) >= NOW + 60_000
    del record["done_at"]
    assert bounds(deletion_view(0, "c/r/u/1", record), 0)[1] == "+"


@pytest.mark.parametrize(
    ("name", "yes"), [("c/r/u/1#1.0", True), ("c/r/u/1", False), ("#1.0", False), ("a#1.x", False), ("a#1", False)]
)
def test_a_jobs_id_is_recognised(name: str, yes: bool) -> None:
    assert is_job(name) == yes


# ---- what the audit tells over and over


def told(*words: str, every: timedelta = timedelta(seconds=10)) -> list[TimelineEntry]:
    """Moments one after another, written as `what`, `what@job` or `what@job: why`."""
    start, found = datetime(2030, 5, 17, tzinfo=UTC), list[TimelineEntry]()
    for number, word in enumerate(words):
        (what, _, job), why = word.partition(": ")[0].partition("@"), word.partition(": ")[2]
        found.append(TimelineEntry(at=start + number * every, what=what, job=job, who="w", why=why))
    return found


def lines(*words: str) -> list[tuple[str, int, int, int]]:
    """What, how often, of how many jobs, from the first to the last in seconds."""
    return [
        (one.what, one.times, len(one.jobs), round((one.until - one.at).total_seconds()))
        for one in merge_repeats(told(*words))
    ]


def test_repeated_entries_are_shown_once_with_their_count_and_duration() -> None:
    assert lines("published", *["held: no account"] * 28, "planned") == [
        ("published", 1, 0, 0), ("held", 28, 0, 270), ("planned", 1, 0, 0),
    ]  # fmt: skip


def test_a_job_that_repeats_a_cycle_is_shown_as_one_cycle() -> None:
    assert lines(*["taken@1", "check@1: in use"] * 3, "gone@1") == [
        ("taken", 3, 1, 40), ("check", 3, 1, 40), ("gone", 1, 1, 0),
    ]  # fmt: skip
    # Whatever others do meanwhile.
    assert lines(*["taken@1", "taken@2", "check@1", "check@2"] * 3) == [("taken", 6, 2, 90), ("check", 6, 2, 90)]


def test_another_reason_is_another_line_and_what_comes_after_it_begins_anew() -> None:
    assert lines("held: a", "held: a", "held: b", "held: a") == [
        ("held", 2, 0, 10),
        ("held", 1, 0, 0),
        ("held", 1, 0, 0),
    ]


def test_nothing_is_folded_that_happened_once() -> None:
    story = ("published", "planned", "taken@1", "taken@2: other lane", "gone@1", "gone@2: called", "done")
    assert [(one.what, one.why, one.times) for one in merge_repeats(told(*story))] == [
        (one.what, one.why, 1) for one in told(*story)
    ]
    assert merge_repeats([]) == []
