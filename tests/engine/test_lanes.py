"""Lanes: who comes first, who keeps a share, how many at once, and that no lane is in another's way."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Target, Verdict
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World
from workers.handlers.protocol import Batch

WIDE = Limit.bucket("calls", 1e6, 1e6)


def many(name: str, count: int, lane: str = LANE) -> list[Target]:
    return [thing(f"{name}-{number}", lane) for number in range(count)]


def drawing(lane: str) -> Sequence[Draw]:
    return (Draw(WIDE),)


async def test_urgent_jobs_of_a_lane_come_before_background_ones(world: World) -> None:
    outside = Outside()
    sweep = event("sweep", urgent=0)
    now = world.beside(sweep, "now")
    await world.lay(sweep, many("background", 5))
    await world.lay(now, many("urgent", 5))
    await world.start(outside, lane_cap=1, concurrency=1)
    await world.until_done(sweep, now)
    assert [name.partition("-")[0] for name in outside.called] == ["urgent"] * 5 + ["background"] * 5


@pytest.mark.parametrize("draws", [lambda lane: (), drawing], ids=["unlimited", "limited"])
async def test_background_jobs_keep_a_tenth_while_urgent_ones_wait(
    world: World, draws: Callable[[str], Sequence[Draw]]
) -> None:
    outside = Outside(draws_on=draws)
    sweep = event("sweep", urgent=0)
    now = world.beside(sweep, "now")
    await world.lay(sweep, many("background", 300))
    await world.lay(now, many("urgent", 300))
    await world.start(outside, lane_cap=10, batch=10)
    await world.until_done(sweep, now)
    kinds = [name.partition("-")[0] for name in outside.called]
    last = len(kinds) - kinds[::-1].index("urgent")
    share = kinds[:last].count("background") / last
    assert 0.08 <= share <= 0.13
    # It is a share all along, not a remainder at the end.
    half = kinds[: last // 2]
    assert 0.06 <= half.count("background") / len(half) <= 0.15


async def test_background_lanes_keep_a_tenth_of_a_limit_that_urgent_lanes_exhaust(world: World) -> None:
    scarce = Limit.bucket("calls", 10, 200)
    outside = Outside(draws_on=lambda lane: (Draw(scarce),))
    sweep, now = event("sweep", urgent=0), event("now")
    await world.lay(sweep, many("background", 150, "sim/acct/list"))
    await world.lay(now, many("urgent", 250, "sim/acct/delete"))
    await world.start(outside)

    async def urgent_gone() -> bool:
        return sum(name.startswith("urgent") for name in outside.called) == 250

    await world.until("all urgent ones are gone", urgent_gone)
    kinds = [name.partition("-")[0] for name in outside.called]
    share = kinds.count("background") / len(kinds)
    assert 0.05 <= share <= 0.2


@pytest.mark.every_server
async def test_a_lane_cap_holds_over_all_workers_and_follows_the_leases(world: World) -> None:
    outside, free, at_once = Outside(), asyncio.Event(), list[int]()

    async def slow(job: Job, batch: Batch) -> Verdict:
        at_once.append(len(await world.leases(LANE)))
        await free.wait()
        at_once.append(len(await world.leases(LANE)))
        await outside.call(job, batch)
        return Gone()

    outside.always = slow
    one = event("a")
    await world.lay(one, many("t", 40))
    workers = [
        await world.start(
            outside,
            lane_cap=6,
            batch=4,
            lease=timedelta(seconds=1),
            attempt_timeout=timedelta(milliseconds=900),
        )
        for _ in range(2)
    ]

    async def full() -> bool:
        return len(await world.leases(LANE)) == 6

    await world.until("the lane is full", full)
    await workers[0].crash()
    left = workers[1]

    async def only_ours() -> bool:
        return set((await world.holders(LANE)).values()) <= {left.name}

    # No counter was left wrong: what the dead one held is free again once its leases are over.
    await world.until("the leases of the dead are given back", only_ours)
    free.set()
    await world.until_done(one)
    assert max(at_once) == 6
    assert not await world.leases(LANE)


async def test_lane_caps_by_pattern_come_before_the_general_one(world: World) -> None:
    world.change("worker", lane_cap=50, lane_caps={"sim/*/delete": 2})
    outside, free = Outside(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await free.wait()
        return Gone()

    outside.always = slow
    one = event("a")
    await world.lay(one, [*many("capped", 10), *many("free", 10, "sim/acct/other")])
    await world.start(outside)

    async def taken() -> bool:
        return len(await world.leases("sim/acct/other")) == 10 and bool(await world.leases(LANE))

    await world.until("both lanes are served", taken)
    assert len(await world.leases(LANE)) == 2
    free.set()
    await world.until_done(one)


async def test_a_lane_with_10000_jobs_does_not_hold_up_a_lane_with_one(world: World) -> None:
    outside = Outside()
    one = event("flood")
    single = world.beside(one, "single")
    await world.lay(one, many("flood", 10_000))
    await world.start(outside)

    async def busy() -> bool:
        return len(outside.calls) > 500

    await world.until("the flood is being worked on", busy)
    outside.has(single.uid, [thing("single", "sim/acct/quiet")])
    before = len(outside.calls)
    await world.publish(single)
    await world.until_done(single)
    assert outside.called.index("single") - before < 2000
    assert len(outside.calls) < 10_000


async def test_many_full_lanes_take_turns_and_a_late_lane_has_its_turn_soon(world: World) -> None:
    outside = Outside()
    one = event("flood")
    late = world.beside(one, "late")
    lanes = [f"sim/acct/op{number:02}" for number in range(12)]
    await world.lay(one, [target for lane in lanes for target in many(lane[-4:], 60, lane)])

    async def slow(job: Job, batch: Batch) -> Verdict:
        await asyncio.sleep(0.002)
        await outside.call(job, batch)
        return Gone()

    outside.always = slow
    await world.start(outside, concurrency=8, batch=4)

    async def busy() -> bool:
        return len(outside.calls) > 60

    await world.until("the lanes are being worked on", busy)
    outside.has(late.uid, [thing("late", "sim/acct/zz")])
    before = len(outside.calls)
    await world.publish(late)
    await world.until_done(late)
    # Behind everything that waited it would be the last of more than 600.
    assert outside.called.index("late") - before < 300

    await world.until_done(one)
    halfway = Counter(call.lane for call in outside.calls[: 12 * 30])
    for lane in lanes:
        assert halfway[lane] >= 16, f"{lane} had to wait for others: {halfway}"


async def test_a_dry_bucket_holds_up_only_the_lanes_that_draw_on_it(world: World) -> None:
    dry, wet = Limit.bucket("dry", 2, 2 / 3600), Limit.bucket("wet", 1000, 1000)
    outside = Outside(draws_on=lambda lane: (Draw(dry if lane.endswith("/dry") else wet),))
    one = event("a")
    await world.lay(
        one,
        [*many("dry", 5, "sim/acct/dry"), *many("same", 5, "sim/acct/wet"), *many("other", 5, "sim/else/dry")],
    )
    await world.start(outside)

    async def settled() -> bool:
        return len(outside.calls) == 9

    await world.until("everything that has tokens is gone", settled)
    places = Counter(name.partition("-")[0] for name in outside.called)
    # Each account has a bucket of its own.
    assert places == {"dry": 2, "same": 5, "other": 2}
    again = (await world.members("lanes"))["sim/acct/dry"]
    assert 1000 < (again - await world.now()) / 1000 <= 1800
    await world.jump(timedelta(hours=2))
    await world.until("the rest is gone, too", _calls(outside, 13))


async def test_a_handler_gets_the_jobs_of_one_lane_that_were_taken_together(world: World) -> None:
    outside = Outside()
    one = event("a")
    await world.lay(one, [*many("a", 20, "sim/acct/a"), *many("b", 20, "sim/acct/b")])
    await world.start(outside)
    await world.until_done(one)
    for lane, targets in outside.batches:
        assert all(name.startswith(lane[-1]) for name in targets)
    assert len(outside.batches) <= 6
    assert max(len(targets) for _, targets in outside.batches) == 20


async def test_round_trips_per_job_fall_with_load(world: World) -> None:
    trips = dict[int, float]()
    for count in (10, 1000):
        outside, one = Outside(draws_on=drawing), event(f"load-{count}")
        await world.lay(one, many("t", count))
        running = await world.start(outside, lane_cap=500, concurrency=500)
        await world.until_done(one)
        trips[count] = running.trips.total() / count
        await running.stop()
    assert trips[1000] < trips[10] / 10
    assert trips[1000] < 0.3


def _calls(outside: Outside, count: int) -> Callable[[], Awaitable[bool]]:
    async def made() -> bool:
        return len(outside.calls) >= count

    return made


@pytest.mark.parametrize("urgent", [1, 0], ids=["urgent", "background"])
async def test_a_lane_that_draws_two_tokens_goes_on_beside_one_that_draws_one(world: World, urgent: int) -> None:
    limit = Limit.bucket("reads", 4, rate=40)
    outside = Outside(draws_on=lambda lane: (Draw(limit, 2.0 if lane.endswith("/two") else 1.0),))
    one = event("a", urgent=urgent)
    await world.lay(one, [*many("one", 40, "sim/acct/one"), *many("two", 40, "sim/acct/two")])
    for _ in range(2):
        await world.start(outside)
    await world.until_done(one)
    ended = max(place for place, target in enumerate(outside.called) if target.startswith("one"))
    assert sum(target.startswith("two") for target in outside.called[:ended]) >= 4
