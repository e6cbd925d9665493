"""The rows about Azure, in the smallest sizes, on the stand-in: how the peer asks, and what the harness counts.
Knell's own part is one real process at an embedded API server."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial

import pytest

from bench.azure_subscription import RESERVED, Subscription, used
from bench.bench_server import BenchServer
from bench.contenders import collecting, karpenter, knell_collecting
from bench.contenders.karpenter import OWN_CODE, order_for
from bench.contenders.protocol import Orphans, Reservations
from bench.peers.karpenter_peer import collector_of
from standins.azure import AzureBehaviour, BucketSize
from standins.kubernetes_api import EmbeddedApi

pytestmark = pytest.mark.long

FEW = AzureBehaviour(read_quotas=False, arm_deletes=BucketSize(4, 10), nic_goes=0.5)


@pytest.fixture
def opened() -> Iterator[Callable[..., Subscription]]:
    with ExitStack() as stack:
        yield lambda scale, behaviour: stack.enter_context(Subscription(scale, behaviour))


def collect(there: Subscription, interfaces: int, passes: int | None = None) -> int:
    """Runs the peer until all are gone, or so many passes right after each other; how many it took."""

    async def run() -> int:
        async with collector_of(order_for(there, interfaces)) as collector, asyncio.timeout(60):
            if passes is None:
                await collector.run()
            else:
                for _ in range(passes):
                    await collector.one_pass()
            return collector.passes

    return asyncio.run(run())


# ---- the peer


def test_undisturbed_the_peer_makes_three_calls_for_each_interface_and_two_lists(
    opened: Callable[..., Subscription],
) -> None:
    there = opened(50.0, AzureBehaviour())
    names = there.leave(5)
    assert collect(there, 5) == 1
    assert there.all_gone(names)
    assert (there.calls, there.refused, len(there.deletes)) == (2 + 3 * 5, 0, 5)


def test_a_reserved_interface_is_left_to_the_next_pass(opened: Callable[..., Subscription]) -> None:
    there = opened(50.0, AzureBehaviour())
    names = there.leave(3)
    there.reserve(names[:1], 60)
    assert collect(there, 3) == 2
    assert there.all_gone(names)
    assert [(one.name, one.code) for one in there.deletes if one.code] == [(names[0], RESERVED)]
    assert there.gone[names[0]] - max(there.gone[name] for name in names[1:]) >= 300


def test_a_delete_without_quota_is_tried_four_times_and_then_dropped(opened: Callable[..., Subscription]) -> None:
    there = opened(50.0, AzureBehaviour(read_quotas=False, network_changes=BucketSize(2, 0.001)))
    names = there.leave(5)
    collect(there, 5, passes=1)
    there.look()
    assert len(there.gone) == 2
    tries = [sum(one.name == name for one in there.deletes) for name in names]
    assert sorted(tries) == [1, 1, 4, 4, 4]
    assert there.refused == sum(one.status == 429 for one in there.deletes) == 12


def test_the_peer_takes_no_less_time_for_1000_than_its_own_code_and_is_throttled_no_more_often() -> None:
    collected = collecting.collect(karpenter.begin, Orphans(1000))
    known = OWN_CODE[1000]
    # On a busy machine it takes longer, and so is throttled less.
    assert collected.seconds >= known.seconds * (1 - karpenter.NEAR)
    assert collected.throttled is not None
    assert collected.deletes is not None
    assert 0 < collected.throttled / collected.deletes <= known.throttled * (1 + karpenter.NEAR)


def test_a_reservation_costs_the_peer_a_pass() -> None:
    late = karpenter.Karpenter().outwait(None, Reservations(10, 2, 5, 18))  # type: ignore[arg-type]  # needs no arena
    assert len(late) == 10
    # 300 s between passes, less the reservation that begins with the refused delete or after it.
    assert min(late) >= 270


# ---- what the harness counts


def test_quotas_and_refusals_are_counted_from_the_journal(opened: Callable[..., Subscription]) -> None:
    there = opened(20.0, FEW)
    names = there.leave(12)
    collect(there, 12)
    assert there.all_gone(names)
    throttled = [one for one in there.deletes if one.status == 429]
    assert throttled
    assert len(there.deletes) == 12 + len(throttled)
    assert there.refused == len(throttled)
    assert 0 < used(there.deletes, FEW.network_changes) < 1


# ---- Knell


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer(api=EmbeddedApi()) as ready:
        yield ready


@pytest.mark.parametrize("read_quotas", [False, True])
def test_knell_collects_resources_without_an_event_and_proves_them_gone(server: BenchServer, read_quotas: bool) -> None:
    server.empty()
    begin = partial(knell_collecting.begin, server, timedelta(seconds=30))
    collected = collecting.collect(begin, Orphans(40, read_quotas=read_quotas), scale=30.0)
    assert collected.interfaces == 40
    # Those that were reserved were refused once, for that, and no other was refused at all.
    assert (collected.deletes, collected.throttled, collected.refused) == (42, 0, 0)
    assert collected.calls is not None
    assert collected.calls >= 42 + 3 * 40
    assert collected.seconds >= 180


def test_knell_goes_when_the_reservation_has_ended(server: BenchServer) -> None:
    server.empty()
    begin = partial(knell_collecting.begin, server, timedelta(seconds=1))
    late = collecting.outwait(begin, Reservations(interfaces=6, steps=3, within=2, seconds=4), 1.0)
    assert len(late) == 6
    assert min(late) >= 0
