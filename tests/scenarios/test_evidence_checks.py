"""Checks of the scenarios on small invented logs with one mistake each, and the complaint about it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.scenarios.audit import Audit, read_audit
from tests.scenarios.crash_evidence import Evidence
from tests.scenarios.quota_evidence import QuotaEvidence
from tests.scenarios.workers import Kill
from tests.simulated import JournalLine, Quota

JOB = "c/things/u/1#1.0"
RELEASE = "c/things/u/1#1.1"


def call(method: str, at: float, status: int, *, caller: str = "w1", name: str = "it") -> JournalLine:
    return JournalLine(
        what="request", at=at + 0.1, arrived=at, method=method, status=status, account="a", id=name, caller=caller
    )


def life(caller: str = "w1", start: float = 10.0) -> list[JournalLine]:
    gone = JournalLine(what="gone", at=start + 1, account="a", id="it")
    return [call("GET", start, 200, caller=caller), call("DELETE", start + 1, 204, caller=caller), gone,
            call("GET", start + 2, 200, caller=caller)]  # fmt: skip


def intent(at: float, worker: str = "w1") -> tuple[str, dict[str, str]]:
    return f"{at * 1000:.0f}-0", {"entry": "intent", "worker": worker, "lane": "l", "jobs": f"{JOB} {RELEASE}"}


def outcome(at: float, note: str = "gone called", worker: str = "w1") -> tuple[str, dict[str, str]]:
    return f"{at * 1000:.0f}-0", {"entry": "outcome", "worker": worker, "lane": "l", note: f"{JOB} {RELEASE}"}


ORDERLY = (intent(9), outcome(13))


def evidence(
    log: Iterable[JournalLine] = (), audit: Iterable[tuple[str, dict[str, str]]] = ORDERLY, kills: Iterable[Kill] = ()
) -> Evidence:
    read: Audit = read_audit(audit)
    return Evidence(
        frozenset({("a", "it")}), frozenset(), list(log) or life(), read, {("a", "it"): JOB}, list(kills), []
    )


def test_an_orderly_life_gives_no_complaint() -> None:
    assert evidence().complaints() == []


REPEATED = [*life(), call("DELETE", 30, 404, caller="w2")]
TWICE = (intent(9), intent(29, "w2"), outcome(33, worker="w2"))


@pytest.mark.parametrize("kills", [(), (Kill("w2", 11, 11),), (Kill("w1", 5, 5),), (Kill("w1", 29.5, 29.6),)])
def test_a_repeated_delete_without_a_kill_in_between_is_complained_about(kills: tuple[Kill, ...]) -> None:
    assert any("deleted again" in words for words in evidence(REPEATED, TWICE, kills).complaints())


def test_a_repeated_delete_of_a_job_in_flight_at_a_kill_is_allowed() -> None:
    assert evidence(REPEATED, TWICE, [Kill("w1", 11.5, 11.6)]).complaints() == []


def test_a_repeated_delete_of_a_job_in_flight_at_a_kill_of_the_server_is_allowed() -> None:
    found = evidence(REPEATED, TWICE)
    assert replace(found, server_kills=[Kill("server", 11.5, 12)]).complaints() == []


def test_a_second_look_without_a_kill_is_complained_about() -> None:
    again = (*ORDERLY, intent(19), outcome(21, "gone"))
    found = evidence([*life(), call("GET", 20, 200)], again).complaints()
    assert [words for words in found if "met no kill" in words]


def test_a_call_that_no_intent_announced_is_complained_about() -> None:
    found = evidence(life("w9"), ORDERLY).complaints()
    assert [words for words in found if "no intent of w9" in words]


def test_a_call_before_its_intent_is_complained_about() -> None:
    found = evidence(life(), (intent(12), outcome(13))).complaints()
    assert [words for words in found if "no intent of w1" in words]


@pytest.mark.parametrize("entries", [(intent(9),), (intent(9), outcome(13, "gone"))])
def test_a_call_without_an_outcome_that_tells_of_it_is_complained_about(
    entries: tuple[tuple[str, dict[str, str]], ...],
) -> None:
    assert [words for words in evidence(life(), entries).complaints() if "has no outcome" in words]


def test_a_bystander_that_is_asked_for_is_complained_about() -> None:
    found = evidence([*life(), call("DELETE", 20, 404, name="bystander")]).complaints()
    assert [words for words in found if "outside the set" in words]


def test_a_target_that_stays_is_complained_about() -> None:
    log = [call("GET", 10, 200), call("DELETE", 11, 500)]
    assert [words for words in evidence(log).complaints() if "never removed" in words]


def test_a_stage_that_opens_early_is_complained_about() -> None:
    assert [words for words in evidence([*life(), call("DELETE", 12, 409)]).complaints() if "its stage" in words]


def test_a_job_set_aside_is_complained_about() -> None:
    aside = ("14000-0", {"entry": "decision", "what": "set aside", "id": JOB, "why": "its worker died"})
    assert [words for words in evidence(audit=(*ORDERLY, aside)).complaints() if "set aside" in words]


def test_a_deletion_that_is_held_for_another_reason_than_a_kill_is_complained_about() -> None:
    held = ("14000-0", {"entry": "decision", "what": "held", "id": "deletion:d", "why": "its plan is no plan"})
    assert [words for words in evidence(audit=(*ORDERLY, held)).complaints() if "no plan" in words]


def test_a_deletion_is_published_again_only_after_its_planner_was_killed() -> None:
    again = ("14000-0", {"entry": "decision", "what": "published again", "id": "d", "why": "its entry was gone"})
    assert [words for words in evidence(audit=(*ORDERLY, again)).complaints() if "published again" in words]


# ---- quota: ten tokens a second


def drawn(*calls: JournalLine, headers: bool = False) -> list[str]:
    quota = Quota(capacity=100, per=timedelta(seconds=10))
    return QuotaEvidence(quota, 1.0, sorted(calls, key=lambda one: one.arrived), [], headers).complaints()


def delete(at: float, remaining: float = 0.0) -> JournalLine:
    return JournalLine(what="request", at=at, arrived=at, method="DELETE", status=204, caller="w1", remaining=remaining)


REFUSED = JournalLine(what="request", at=10, arrived=10, method="DELETE", status=429, caller="w1", retry_until=12)


def test_a_call_during_a_pause_is_complained_about() -> None:
    assert len(drawn(REFUSED, delete(11.5))) == 1


def test_a_call_that_was_on_its_way_when_the_pause_began_is_not() -> None:
    assert drawn(REFUSED, delete(10.5), delete(12.2)) == []


def test_calls_that_come_faster_than_tokens_flow_after_a_pause_are_complained_about() -> None:
    assert drawn(REFUSED, *(delete(12.1 + n * 0.1) for n in range(20))) == []
    assert drawn(REFUSED, *(delete(12.1 + n * 0.01) for n in range(20))) != []


def test_calls_allowed_by_the_provider_after_a_pause_are_not_early() -> None:
    told = [delete(12.1, remaining=50.0), *(delete(12.2 + n * 0.01, remaining=50.0 - n) for n in range(20))]
    assert drawn(REFUSED, *told, headers=True) == []
    assert drawn(REFUSED, *told, headers=False) != []
