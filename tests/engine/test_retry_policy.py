"""Retry policy, without a server: backoff, caps, deadlines, stored records and counted attempts."""

import random
from datetime import timedelta

import pytest

from service.contract import VERSION, Blocked, Found, Gone, Job, JobRecord, Left, Pending, Refused, Throttled
from service.settings import RetrySettings
from workers.handlers.protocol import NotCleared
from workers.runtime.retry_policy import backoff, outcome_of, settlement

RETRY = RetrySettings(base=timedelta(seconds=1), cap=timedelta(minutes=5), held_after=10)
NOW = 1_700_000_000_000


def job(**fields: object) -> Job:
    known = {"v": VERSION, "stage": 0, "lane": "sim/acct/delete", "kind": "thing", "target": "t"} | fields
    return Job("c/r/u/1#1.0", 7, JobRecord(**known))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 5, 8, 9, 31, 1000])
def test_backoff_spreads_over_everything_from_nothing_to_its_bound(count: int) -> None:
    base, cap = timedelta(seconds=1), timedelta(minutes=5)
    bound = min(300_000, 1000 * 2**count)
    assert backoff(base, cap, count, lambda: 0.0) == 0
    assert backoff(base, cap, count, lambda: 1.0) == bound
    chance = random.Random(1)
    waits = [backoff(base, cap, count, chance.random) for _ in range(2000)]
    assert max(waits) <= bound
    # Full jitter: not a wait with some noise on it, but all of the range alike.
    assert 0.45 * bound < sum(waits) / len(waits) < 0.55 * bound
    assert min(waits) < 0.02 * bound


def test_an_unknown_error_spends_an_attempt_and_keeps_the_first_words() -> None:
    first = outcome_of(job(), OSError("one"), RETRY, NOW, lambda: 1.0)
    assert (first.kind, first.delay, first.record.attempts) == ("retry", 2000, 1)
    second = outcome_of(Job("x#1.0", 8, first.record), ValueError("two"), RETRY, NOW, lambda: 1.0)
    assert second.delay == 4000
    assert (second.record.first_error, second.record.last_error) == ("OSError: one", "ValueError: two")


def test_a_required_job_slows_down_to_the_cap_and_is_held_from_the_tenth_attempt_on() -> None:
    held = [outcome_of(job(attempts=count), OSError("x"), RETRY, NOW, lambda: 1.0) for count in range(200)]
    assert [outcome.record.held for outcome in held] == [0] * 9 + [1] * 191
    assert {outcome.kind for outcome in held} == {"retry"}
    assert held[-1].delay == 300_000


def test_a_best_effort_job_is_not_held_and_ends_at_its_deadline() -> None:
    fields = {"strategy": "best-effort", "deadline": NOW + 1000, "attempts": 50}
    before = outcome_of(job(**fields), OSError("x"), RETRY, NOW, lambda: 1.0)
    assert (before.kind, before.record.held, before.delay) == ("retry", 0, 1000)
    at = outcome_of(job(**fields), OSError("x"), RETRY, NOW + 1000, lambda: 1.0)
    assert (at.kind, at.record.state) == ("dead", "dead")
    assert outcome_of(job(**fields), Gone(), RETRY, NOW + 5000).kind == "gone"
    assert outcome_of(job(**fields), NotCleared("paused", 9), RETRY, NOW + 5000).kind == "back"


@pytest.mark.parametrize(
    ("verdict", "kind", "delay"),
    [
        (Pending(timedelta(seconds=15)), "check", 15_000),
        (Throttled(timedelta(seconds=7)), "throttled", 7_000),
        (Throttled(), "throttled", 500),
        (Blocked("vm", timedelta(seconds=180)), "blocked", 180_000),
        (Refused("not ours"), "refused", 900_000),
        (Found((), "2 more"), "found", 0),
        (NotCleared("paused", 1234), "back", 1234),
    ],
)
def test_only_unknown_errors_spend_attempts(verdict: Pending, kind: str, delay: int) -> None:
    outcome = outcome_of(job(attempts=4), verdict, RETRY, NOW, lambda: 1.0)
    assert (outcome.kind, outcome.delay, outcome.record.attempts) == (kind, delay, 4)


def test_blocked_without_a_time_grows_with_each_wait_up_to_its_own_cap() -> None:
    waits = [outcome_of(job(waits=count), Blocked("vm"), RETRY, NOW, lambda: 1.0) for count in range(12)]
    assert [outcome.delay for outcome in waits[:4]] == [5_000, 10_000, 20_000, 40_000]
    assert waits[-1].delay == 300_000
    assert [outcome.record.waits for outcome in waits[:3]] == [1, 2, 3]


def test_a_mark_as_held_goes_with_anything_but_a_hand_back_or_a_throttle() -> None:
    for verdict in (Gone(), Pending(timedelta(0)), Blocked("x"), Found(())):
        assert outcome_of(job(held=1), verdict, RETRY, NOW).record.held == 0
    for waiting in (Throttled(), NotCleared("paused")):
        assert outcome_of(job(held=1), waiting, RETRY, NOW).record.held == 1


def test_what_blocks_waits_by_itself_unless_it_takes_a_person() -> None:
    for person in (False, True):
        record = outcome_of(job(), Blocked("x", person=person), RETRY, NOW).record
        assert (record.shown, record.held, record.waiting) == ("held" if person else "waiting", person, not person)


def test_a_job_that_found_more_begins_anew_with_what_it_is_to_remember() -> None:
    record = outcome_of(job(waits=3, resume="old"), Found((), "2 more", "new"), RETRY, NOW).record
    assert (record.verdict, record.detail, record.resume, record.waits, record.state) == (
        "found",
        "2 more",
        "new",
        0,
        "",
    )


def test_long_words_of_a_provider_are_cut() -> None:
    outcome = outcome_of(job(), OSError("x" * 10_000), RETRY, NOW)
    assert len(outcome.record.last_error) == 500
    assert len(outcome_of(job(), Refused("y" * 10_000), RETRY, NOW).record.detail) == 500


def test_an_outcome_says_whether_a_destructive_call_was_made() -> None:
    outcome = outcome_of(job(), Gone("released"), RETRY, NOW)
    assert settlement(job(), "sim/acct/delete", outcome, called=True).note == "gone called: released"
    assert settlement(job(), "sim/acct/delete", outcome, called=False).note == "gone: released"


def test_suspicion_ends_with_an_attempt_that_came_to_a_verdict() -> None:
    suspect = job(alone=1, kills=2, fallen=3, suspect="w")
    tried = settlement(suspect, "sim/acct/delete", outcome_of(suspect, OSError("x"), RETRY, NOW), called=True)
    assert '"alone"' not in tried.record
    assert '"kills"' not in tried.record
    back = settlement(suspect, "sim/acct/delete", outcome_of(suspect, NotCleared("x"), RETRY, NOW), called=False)
    assert '"alone":1' in back.record
    assert '"kills":2' in back.record


def test_what_may_pass_by_itself_is_asked_again_soon_and_never_later_than_its_objection_says() -> None:
    def delay(waits: int, wait_ms: int) -> int:
        objection = NotCleared("paused", wait_ms, refused=True, deletion="x")
        outcome = outcome_of(job(waits=waits), objection, RETRY, NOW, lambda: 1.0)
        assert (outcome.kind, outcome.record.held) == ("refused", 1)
        return outcome.delay

    assert [delay(waits, 30_000) for waits in (0, 1, 2, 3, 50)] == [5_000, 10_000, 20_000, 30_000, 30_000]
    assert delay(50, 0) == 900_000


def test_a_target_left_on_purpose_ends_as_given_up() -> None:
    outcome = outcome_of(job(held=1), Left("its task is not wanted any more"), RETRY, NOW)
    assert (outcome.kind, outcome.record.state, outcome.record.held) == ("dead", "dead", 0)
    assert (outcome.record.verdict, outcome.record.detail) == ("left", "its task is not wanted any more")


def test_what_is_to_be_kept_is_kept_word_for_word_or_the_attempt_has_failed() -> None:
    whole = '{"description":"' + "ä" * 3000 + '"}'
    found = outcome_of(job(), Pending(timedelta(0), "revoking", kept=whole), RETRY, NOW)
    assert (found.kind, found.note) == ("check", f"revoking: {whole}")
    # Not where every reader of the job meets it.
    assert found.record.detail == "revoking"
    assert settlement(job(), "sim/acct/delete", found, called=False).note.endswith(whole)
    for kept, why in (("x" * 8001, "longer than 8000 bytes"), ("ä" * 4001, "longer"), ("token: hunter2", "credential")):
        failed = outcome_of(job(), Pending(timedelta(0), "revoking", resume="next", kept=kept), RETRY, NOW)
        assert failed.kind == "retry"
        assert why in failed.record.last_error
        assert "hunter2" not in str(failed)
        # So the next step is not taken.
        assert failed.record.resume == ""
