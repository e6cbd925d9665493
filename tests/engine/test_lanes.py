"""Lanes: order, background share, concurrency, and no lane blocks another."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from service.contract import Draw, Gone, Job, Limit, Target, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch

WIDE = Limit.bucket("calls", 1e6, 1e6)


def many(name: str, count: int, lane: str = LANE) -> list[Target]:
    return [thing(f"{name}-{number}", lane) for number in range(count)]


def drawing(lane: str) -> Sequence[Draw]:
    return (Draw(WIDE),)


async def test_urgent_jobs_of_a_lane_come_before_background_ones(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    sweep = event("sweep", urgent=0)
    now = engine.beside(sweep, "now")
    await engine.lay(sweep, many("background", 5))
    await engine.lay(now, many("urgent", 5))
    await engine.start(provider, lane_cap=1, concurrency=1)
    await engine.until_done(sweep, now)
    assert [name.partition("-")[0] for name in provider.called] == ["urgent"] * 5 + ["background"] * 5


@pytest.mark.parametrize("draws", [lambda lane: (), drawing], ids=["unlimited", "limited"])
async def test_background_jobs_keep_a_tenth_while_urgent_ones_wait(
    engine: EngineUnderTest, draws: Callable[[str], Sequence[Draw]]
) -> None:
    provider = ScriptedProvider(draws_on=draws)
    sweep = event("sweep", urgent=0)
    now = engine.beside(sweep, "now")
    await engine.lay(sweep, many("background", 300))
    await engine.lay(now, many("urgent", 300))
    await engine.start(provider, lane_cap=10, batch=10)
    await engine.until_done(sweep, now)
    kinds = [name.partition("-")[0] for name in provider.called]
    last = len(kinds) - kinds[::-1].index("urgent")
    share = kinds[:last].count("background") / last
    assert 0.08 <= share <= 0.13
    # It is a share all along, not a remainder at the end.
    half = kinds[: last // 2]
    assert 0.06 <= half.count("background") / len(half) <= 0.15


async def test_background_lanes_keep_a_tenth_of_a_limit_that_urgent_lanes_exhaust(engine: EngineUnderTest) -> None:
    scarce = Limit.bucket("calls", 10, 200)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(scarce),))
    sweep, now = event("sweep", urgent=0), event("now")
    await engine.lay(sweep, many("background", 150, "sim/acct/list"))
    await engine.lay(now, many("urgent", 250, "sim/acct/delete"))
    await engine.start(provider)

    async def urgent_gone() -> bool:
        return sum(name.startswith("urgent") for name in provider.called) == 250

    await engine.until("all urgent ones are gone", urgent_gone)
    kinds = [name.partition("-")[0] for name in provider.called]
    share = kinds.count("background") / len(kinds)
    assert 0.05 <= share <= 0.2


@pytest.mark.every_server
async def test_a_lane_cap_holds_over_all_workers_and_follows_the_leases(engine: EngineUnderTest) -> None:
    provider, free, at_once = ScriptedProvider(), asyncio.Event(), list[int]()

    async def slow(job: Job, batch: Batch) -> Verdict:
        at_once.append(len(await engine.leases(LANE)))
        await free.wait()
        at_once.append(len(await engine.leases(LANE)))
        await provider.call(job, batch)
        return Gone()

    provider.always = slow
    one = event("a")
    await engine.lay(one, many("t", 40))
    workers = [
        await engine.start(
            provider,
            lane_cap=6,
            batch=4,
            lease=timedelta(seconds=1),
            attempt_timeout=timedelta(milliseconds=900),
        )
        for _ in range(2)
    ]

    async def full() -> bool:
        return len(await engine.leases(LANE)) == 6

    await engine.until("the lane is full", full)
    await workers[0].crash()
    left = workers[1]

    async def only_ours() -> bool:
        return set((await engine.holders(LANE)).values()) <= {left.name}

    # No counter was left wrong: what the dead one held is free again once its leases are over.
    await engine.until("the leases of the dead are given back", only_ours)
    free.set()
    await engine.until_done(one)
    assert max(at_once) == 6
    assert not await engine.leases(LANE)


async def test_lane_caps_by_pattern_come_before_the_general_one(engine: EngineUnderTest) -> None:
    engine.change("worker", lane_cap=50, lane_caps={"sim/*/delete": 2})
    provider, free = ScriptedProvider(), asyncio.Event()

    async def slow(job: Job, batch: Batch) -> Verdict:
        await free.wait()
        return Gone()

    provider.always = slow
    one = event("a")
    await engine.lay(one, [*many("capped", 10), *many("free", 10, "sim/acct/other")])
    await engine.start(provider)

    async def taken() -> bool:
        return len(await engine.leases("sim/acct/other")) == 10 and bool(await engine.leases(LANE))

    await engine.until("both lanes are served", taken)
    assert len(await engine.leases(LANE)) == 2
    free.set()
    await engine.until_done(one)


async def test_a_lane_with_10000_jobs_does_not_hold_up_a_lane_with_one(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("flood")
    single = engine.beside(one, "single")
    await engine.lay(one, many("flood", 10_000))
    await engine.start(provider)

    async def busy() -> bool:
        return len(provider.calls) > 500

    await engine.until("the flood is being worked on", busy)
    provider.has(single.uid, [thing("single", "sim/acct/quiet")])
    before = len(provider.calls)
    await engine.publish(single)
    await engine.until_done(single)
    assert provider.called.index("single") - before < 2000
    assert len(provider.calls) < 10_000


async def test_many_full_lanes_take_turns_and_a_late_lane_has_its_turn_soon(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("flood")
    late = engine.beside(one, "late")
    lanes = [f"sim/acct/op{number:02}" for number in range(12)]
    await engine.lay(one, [target for lane in lanes for target in many(lane[-4:], 60, lane)])

    async def slow(job: Job, batch: Batch) -> Verdict:
        await asyncio.sleep(0.002)
        await provider.call(job, batch)
        return Gone()

    provider.always = slow
    await engine.start(provider, concurrency=8, batch=4)

    async def busy() -> bool:
        return len(provider.calls) > 60

    await engine.until("the lanes are being worked on", busy)
    provider.has(late.uid, [thing("late", "sim/acct/zz")])
    before = len(provider.calls)
    await engine.publish(late)
    await engine.until_done(late)
    # Behind everything that waited it would be the last of more than 600.
    assert provider.called.index("late") - before < 300

    await engine.until_done(one)
    halfway = Counter(call.lane for call in provider.calls[: 12 * 30])
    for lane in lanes:
        assert halfway[lane] >= 16, f"{lane} had to wait for others: {halfway}"


async def test_a_dry_bucket_holds_up_only_the_lanes_that_draw_on_it(engine: EngineUnderTest) -> None:
    dry, wet = Limit.bucket("dry", 2, 2 / 3600), Limit.bucket("wet", 1000, 1000)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(dry if lane.endswith("/dry") else wet),))
    one = event("a")
    await engine.lay(
        one,
        [*many("dry", 5, "sim/acct/dry"), *many("same", 5, "sim/acct/wet"), *many("other", 5, "sim/else/dry")],
    )
    await engine.start(provider)

    async def settled() -> bool:
        return len(provider.calls) == 9

    await engine.until("everything that has tokens is gone", settled)
    places = Counter(name.partition("-")[0] for name in provider.called)
    # Each account has a bucket of its own.
    assert places == {"dry": 2, "same": 5, "other": 2}
    again = (await engine.members("lanes"))["sim/acct/dry"]
    # The next token comes after half an hour, the one after it half an hour later.
    assert 1000 < (again - await engine.now()) / 1000 < 3600
    await engine.jump(timedelta(hours=2))
    await engine.until("the rest is gone, too", _calls(provider, 13))


async def test_a_handler_gets_the_jobs_of_one_lane_that_were_taken_together(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    await engine.lay(one, [*many("a", 20, "sim/acct/a"), *many("b", 20, "sim/acct/b")])
    await engine.start(provider)
    await engine.until_done(one)
    for lane, targets in provider.batches:
        assert all(name.startswith(lane[-1]) for name in targets)
    assert len(provider.batches) <= 6
    assert max(len(targets) for _, targets in provider.batches) == 20


async def test_round_trips_per_job_fall_with_load(engine: EngineUnderTest) -> None:
    trips = dict[int, float]()
    for count in (10, 1000):
        provider, one = ScriptedProvider(draws_on=drawing), event(f"load-{count}")
        await engine.lay(one, many("t", count))
        running = await engine.start(provider, lane_cap=500, concurrency=500)
        await engine.until_done(one)
        trips[count] = running.trips.total() / count
        await running.stop()
    assert trips[1000] < trips[10] / 10
    assert trips[1000] < 0.3


def _calls(provider: ScriptedProvider, count: int) -> Callable[[], Awaitable[bool]]:
    async def made() -> bool:
        return len(provider.calls) >= count

    return made


@pytest.mark.parametrize("urgent", [1, 0], ids=["urgent", "background"])
async def test_a_lane_that_draws_two_tokens_goes_on_beside_one_that_draws_one(
    engine: EngineUnderTest, urgent: int
) -> None:
    limit = Limit.bucket("reads", 4, rate=40)
    provider = ScriptedProvider(draws_on=lambda lane: (Draw(limit, 2.0 if lane.endswith("/two") else 1.0),))
    one = event("a", urgent=urgent)
    await engine.lay(one, [*many("one", 40, "sim/acct/one"), *many("two", 40, "sim/acct/two")])
    for _ in range(2):
        await engine.start(provider)
    await engine.until_done(one)
    ended = max(place for place, target in enumerate(provider.called) if target.startswith("one"))
    assert sum(target.startswith("two") for target in provider.called[:ended]) >= 4
