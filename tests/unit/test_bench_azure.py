"""Computed parts of the bench rows about Azure: the quotas' limit, the peer's waits, Knell's scaled settings.
The limit is compared with figures that were worked out by hand."""

from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
from msgspec.structs import replace

from bench.azure_subscription import used
from bench.contenders.all_contenders import CONTENDERS
from bench.contenders.karpenter import OWN_CODE
from bench.contenders.knell_collecting import LIMITS, RESERVE, sample_of
from bench.contenders.knell_settings import scaled
from bench.contenders.protocol import NotSupportedError, Orphans
from bench.contenders.quotas import Quotas, seconds_for
from bench.peers.azcore_retries import ATTEMPTS, Answered, AzcoreRetries
from bench.rounds import Outcome
from bench.rows import ROWS
from bench.rows.row import RoundSize
from standins.azure import AzureBehaviour, AzureJournalEntry, BucketSize
from tests.unit.test_bench_report import line_of, row
from workers.providers.azure.limits import LATE, Call, call_draws
from workers.providers.azure.model import AzureScope

pytestmark = pytest.mark.long

CALLS: tuple[Call, ...] = (
    "network.read", "network.delete", "compute.read", "compute.delete", "disk.delete", "graph",
)  # fmt: skip
WHERE = AzureScope(subscription="s", group="g", region="westeurope")

# ---- the limit


@pytest.mark.parametrize(
    ("interfaces", "seconds"),
    [
        # 200 at once and 10 a second: over before the reserved ones may go.
        (300, 180),
        (1000, 180),
        # 1,000 at once, then as many in 300 s.
        (2000, 300),
        (3000, 600),
    ],
)
def test_the_limit_is_the_slower_quota_or_the_reservation_and_then_one_delete(interfaces: int, seconds: float) -> None:
    found = Quotas().collect(None, Orphans(interfaces)).seconds  # type: ignore[arg-type]  # no arena is needed
    assert found == pytest.approx(seconds + 3.5)


def test_a_slow_resource_manager_is_the_limit_where_it_is_the_slower_one() -> None:
    assert seconds_for(1200, AzureBehaviour(arm_deletes=BucketSize(200, 2), nic_goes=1)) == pytest.approx(501)


def test_the_limit_knows_no_lateness_of_reservations() -> None:
    with pytest.raises(NotSupportedError):
        row("azure-reservation.p99").trial.measure(Quotas(), None, RoundSize())  # type: ignore[arg-type]  # no arena needed


# ---- the peer


@pytest.mark.parametrize(("attempt", "wait"), [(1, 0.8), (2, 2.4), (3, 5.6), (20, 60.0)])
def test_the_peer_waits_as_its_sdk_does_without_a_retry_after(attempt: int, wait: float) -> None:
    assert AzcoreRetries(draw=lambda: 0.4).wait_after(attempt) == pytest.approx(wait)
    assert AzcoreRetries(scale=10, draw=lambda: 0.4).wait_after(attempt) == pytest.approx(wait / 10)


@pytest.mark.parametrize(("draw", "wait"), [(0.0, 0.64), (1.0, 1.04)])
def test_its_waits_differ_by_chance_between_four_fifths_and_one_and_three_tenths(draw: float, wait: float) -> None:
    assert AzcoreRetries(draw=lambda: draw).wait_after(1) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "6"}, 6.0),
        ({"Retry-After": "0.2"}, 0.2),
        # The clients read the first one as a whole number, and the exact one where there is one.
        ({"Retry-After": "1", "x-ms-retry-after-ms": "800"}, 0.8),
    ],
)
def test_what_an_answer_says_to_wait_for(headers: dict[str, str], wait: float | None) -> None:
    assert Answered(429, headers).wait == wait


@pytest.mark.parametrize(("status", "times"), [(429, ATTEMPTS), (503, ATTEMPTS), (400, 1), (404, 1), (202, 1)])
async def test_only_what_passes_is_tried_again_and_four_times_in_all(status: int, times: int) -> None:
    made = 0

    async def call() -> Answered:
        nonlocal made
        made += 1
        return Answered(status, {"Retry-After": "0"})

    assert (await AzcoreRetries().of(call)).status == status
    assert made == times


async def test_a_call_that_is_let_through_at_last_is_answered() -> None:
    statuses = [429, 429, 202, 429]

    async def call() -> Answered:
        return Answered(statuses.pop(0), {"Retry-After": "0"})

    assert (await AzcoreRetries().of(call)).status == 202
    assert statuses == [429]


# ---- Knell


@pytest.mark.parametrize("call", CALLS)
def test_every_limit_that_knell_keeps_on_azure_is_scaled_and_none_twice(call: Call) -> None:
    for drawn in call_draws(WHERE, call, RESERVE):
        limit = drawn.limit
        samples = [
            sample_of(WHERE.region, pattern).limit for pattern in LIMITS if fnmatchcase(limit.name, pattern)
        ]  # fmt: skip
        assert [replace(sample, name=limit.name) for sample in samples] == [limit]


def test_the_networks_quota_is_as_much_faster_and_its_capacity_lower_by_calls_on_their_way() -> None:
    limit = sample_of(WHERE.region, "*/network.writes").limit
    assert (limit.capacity, limit.per) == (1000, timedelta(seconds=300))
    assert scaled(limit, 1, LATE) == {"rate": pytest.approx(1000 / 300), "capacity": 1000}
    # 0.75 s at 16.7 a second, of which 2.5 are left by itself.
    assert scaled(limit, 5, LATE) == {"rate": pytest.approx(5000 / 300), "capacity": 990}


# ---- what is counted


def entry(at: float, status: int) -> AzureJournalEntry:
    return AzureJournalEntry(number=0, at=at, real=at, operation="nic.delete", status=status)


def test_of_the_quota_what_was_let_through_is_used_whatever_came_of_it_and_what_was_refused_is_not() -> None:
    deletes = [entry(10, 202), entry(11, 400), entry(12, 429), entry(14, 202), entry(90, 429)]
    # Two that were there and two that came within the four seconds to the last one that was let through.
    assert used(deletes, BucketSize(2, 0.5)) == pytest.approx(3 / 4)


# ---- rows


@pytest.mark.parametrize(
    ("id_", "knell", "karpenter", "met"),
    [
        ("azure-clean", 633.6, 1175.0, True),
        ("azure-clean", 633.8, 1175.0, False),
        # Where the peer does not do what its own code does, Knell's figure is compared with nothing.
        ("azure-clean", 610.0, 1411.0, False),
        ("azure-clean", 610.0, 939.0, False),
        ("azure-clean", 610.0, 1409.0, True),
        ("azure-clean.used", 97.0, 50.0, True),
        ("azure-clean.used", 96.9, 50.0, False),
        ("azure-clean.throttled", 0.49, 79.0, True),
        ("azure-clean.throttled", 0.5, 79.0, False),
        ("azure-clean.throttled", 0.0, 63.0, False),
        ("azure-clean.patient", 633.8, 1000.0, False),
        ("azure-clean.patient", 610.0, 1.0, True),
        ("azure-clean.patient.throttled", 0.5, 60.0, False),
        ("azure-clean.patient.used", 96.9, 60.0, False),
        ("azure-reservation.p99", 1.9, 300.0, True),
        ("azure-reservation.p99", 2.0, 300.0, False),
    ],
)
def test_each_goal_about_azure_turns_at_its_bound(id_: str, knell: float, karpenter: float, met: bool) -> None:
    outcome = Outcome(5)
    chosen = row(id_)
    for name, figure in (("knell", knell), ("karpenter", karpenter), ("quotas", 603.5)):
        outcome.samples[chosen.trial.name, name, chosen.figure] = [figure]
    assert line_of(id_, outcome)["met"] is met


def test_a_short_run_is_compared_with_what_the_peers_own_code_did_with_as_many() -> None:
    outcome = Outcome(1, RoundSize(short=True))
    for name, figure in (("knell", 183.5), ("karpenter", OWN_CODE[1000].seconds), ("quotas", 183.5)):
        outcome.samples["azure-clean", name, "seconds"] = [figure]
    line = line_of("azure-clean", outcome)
    assert line["what"].startswith("1,000 interfaces")
    assert line["met"] is True
    assert "karpenter within 20% of 375 s" in str(line["goal"])


def test_without_the_peer_it_is_said_that_it_was_not_compared() -> None:
    outcome = Outcome(5)
    for name, figure in (("knell", 603.5), ("quotas", 603.5)):
        outcome.samples["azure-clean", name, "seconds"] = [figure]
    assert "karpenter within 20% of 1175 s (not compared: left out)" in str(line_of("azure-clean", outcome)["goal"])


def test_karpenter_is_a_peer_and_the_quotas_are_the_limit_and_neither_knows_aws() -> None:
    outcome = Outcome(5)
    for name, seconds in (("knell", 610.0), ("karpenter", 1175.0), ("quotas", 603.5)):
        outcome.samples["azure-clean", name, "seconds"] = [seconds]
    line = line_of("azure-clean", outcome)
    assert (line["limit"], line["peers"]) == (603.5, {"karpenter": 1175.0})
    for contender in CONTENDERS:
        if contender.name in ("karpenter", "quotas"):
            with pytest.raises(NotSupportedError, match="Azure subscription"):
                contender.clean(None, "tagging", 1)  # type: ignore[arg-type]  # no arena is needed


def test_the_rows_about_azure_name_what_was_run() -> None:
    assert "3,000 interfaces without a node" in row("azure-clean").words(RoundSize())
    assert "say to wait for 6 s" in row("azure-clean.patient.calls").words(RoundSize())
    assert "messages say 18 seconds" in row("azure-reservation.p50").words(RoundSize())
    assert [one.id for one in ROWS if "reads, polls and queries are limited" in one.words(RoundSize())] == [
        f"azure-clean.reads{part}" for part in ("", ".used", ".throttled", ".calls", ".refused")
    ]
