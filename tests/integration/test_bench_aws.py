"""The rows about AWS, in the smallest sizes, on the stand-in: how the peer asks, and what the harness counts.
Knell's own part is one real process at an embedded API server."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from bench.aws_account import BenchAccount
from bench.aws_leftovers import AccountLeftovers, entangle, fill, fill_draining
from bench.bench_server import BenchServer
from bench.contenders import capa
from bench.contenders.knell import Knell
from bench.contenders.protocol import Drains
from bench.order import AwsOrder, Finding
from bench.peers.capa_peer import Controller
from bench.peers.capa_resources import account_of
from standins.kubernetes_api import EmbeddedApi

pytestmark = pytest.mark.long


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., BenchAccount]]:
    """Opens accounts, and puts their credentials where clients look for them."""
    with ExitStack() as stack:

        def open_one(scale: float = 1.0, *, buckets: bool = False) -> BenchAccount:
            account = stack.enter_context(BenchAccount(scale, buckets=buckets))
            for name, value in account.credentials.items():
                monkeypatch.setenv(name, value)
            return account

        yield open_one


def order(account: BenchAccount, remains: AccountLeftovers, finding: Finding = "tagging") -> AwsOrder:
    """With hardly a wait between two passes."""
    return AwsOrder(account.address, account.region, finding, list(remains.vpcs), scale=100)


def collect(given: AwsOrder, failures: int | None = None) -> int:
    """Runs the peer to its end, or until so many passes have failed; how many have."""

    async def run() -> int:
        async with account_of(given) as there, asyncio.timeout(60):
            controller = Controller(there, given)
            running = asyncio.create_task(controller.run())
            while not running.done() and (failures is None or controller.failed < failures):
                await asyncio.wait([running], timeout=0.02)
            ended = running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=not ended)
            return controller.failed

    return asyncio.run(run())


@pytest.mark.parametrize("finding", ["tagging", "describe"])
def test_the_peer_makes_as_many_calls_as_its_own_code_where_nothing_is_in_the_way(finding: Finding) -> None:
    capa.check(finding)


def test_interfaces_that_drain_for_30_s_cost_the_peer_13_passes_and_over_10_s_as_they_cost_its_own_code(
    opened: Callable[..., BenchAccount],
) -> None:
    scale = 3.0
    account = opened(scale)
    remains = fill_draining(account, Drains(clusters=2, entangled=0, shortest=30, longest=30))
    given = replace(order(account, remains), scale=scale)
    assert collect(given) == 2 * 13
    assert account.gone(remains.ids)
    late = [account.removed[group].at - account.drained[group] for group in remains.groups]
    # 5 ms doubled 13 times make 41 s of waiting; calls take their time besides.
    assert min(late) >= 10.5


def test_without_the_tagging_api_the_peer_lists_the_whole_account_for_each_cluster(
    opened: Callable[..., BenchAccount],
) -> None:
    account = opened()
    alone, many = fill(account, 1), fill(account, 4)
    assert collect(order(account, alone, "describe")) == 0
    assert account.gone(alone.ids)
    # Ten deletions, four lists, and the tags of 5 classic balancers, 10 others and 15 target groups.
    assert account.calls == 10 + 4 + 3
    assert not any(one in account.removed for one in many.ids)


def test_target_groups_beyond_the_first_page_are_left_behind_without_an_error(
    opened: Callable[..., BenchAccount],
) -> None:
    account = opened()
    account.behave(page_size=4)
    remains = fill(account, 2)
    assert collect(order(account, remains, "describe")) == 0
    assert not account.gone(remains.ids)
    assert all("targetgroup" in one for one in remains.ids if one not in account.removed)


def test_the_first_error_ends_a_pass_so_groups_that_reference_each_other_never_go(
    opened: Callable[..., BenchAccount],
) -> None:
    account = opened()
    knotted = entangle(account, 1)
    failed = collect(order(account, knotted), failures=6)
    account.look()
    assert not account.removed
    # A list and one deletion each time, and at most one more pass that was cut short: the second group is never tried.
    assert 2 * 6 <= 2 * failed <= account.calls <= 2 * failed + 2
    assert account.refused == 0


def test_what_is_refused_for_want_of_quota_is_counted_and_tried_again(opened: Callable[..., BenchAccount]) -> None:
    account = opened(4.0, buckets=True)
    remains = fill(account, 12)
    collect(order(account, remains))
    assert account.gone(remains.ids)
    assert account.refused > 0
    assert account.calls >= 12 * capa.CALLS_OF_A_CLUSTER + account.refused


def test_it_is_known_of_each_group_when_its_last_interface_had_drained(opened: Callable[..., BenchAccount]) -> None:
    account = opened(20.0)
    remains = fill_draining(account, Drains(clusters=2, entangled=0, shortest=5, longest=20))
    assert collect(order(account, remains)) > 0
    assert account.gone(remains.ids)
    assert all(account.removed[group].at >= account.drained[group] for group in remains.groups)
    soon, late = (one.groups for one in remains.by)
    assert max(account.drained[group] for group in soon) < min(account.drained[group] for group in late)


# ---- Knell


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer(api=EmbeddedApi()) as ready:
        yield ready


@pytest.mark.parametrize("finding", ["tagging", "describe"])
def test_knell_clears_an_account_and_lets_its_clusters_go(server: BenchServer, finding: Finding) -> None:
    server.empty()
    cleaned = Knell().clean(server, finding, 3)
    assert cleaned.resources == 30
    assert cleaned.calls is not None
    assert cleaned.calls >= 30
    assert cleaned.refused == 0


def test_knell_removes_what_ack_left_behind_with_four_calls_for_each(server: BenchServer) -> None:
    server.empty()
    removed = Knell().remove(server, 20)
    assert removed.resources == 20
    assert removed.calls is not None
    # A read, the deletion, a check of the request, and the read that proves absence.
    assert removed.calls >= 4 * 20
    assert removed.refused == 0
    assert removed.used is not None
    assert removed.used <= 1


def test_knell_ends_where_groups_reference_each_other(server: BenchServer) -> None:
    server.empty()
    outlasted = Knell().outlast(server, Drains(clusters=3, entangled=2, shortest=6, longest=12))
    assert (outlasted.entangled, outlasted.untied) == (4, 4)
    assert min(outlasted.late) >= 0
