"""The guard: a limited number of deletions of a source per window, until an operator releases it."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from service.contract import Event, Hold, Plan
from service.engine.guard import DeletedObject, Guard
from service.engine.views.guard_forecast import guard_forecast
from service.policy.guard import PREFIX
from service.settings import GuardSettings
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import ScriptedProvider, event, thing
from tests.redis_servers import TestServer

SOURCE = "tests"
HOUR = timedelta(hours=1)
THREE = GuardSettings(most=3, percent=100, window=HOUR)


class SourceGuard:
    """The guard of one source, as planners of one process see it."""

    def __init__(self, engine: EngineUnderTest, settings: GuardSettings = THREE, source: str = SOURCE) -> None:
        self.engine, self.settings, self.source = engine, settings, source
        self.guard = Guard(engine.installation)

    async def ask(self, *uids: str, ago: timedelta = timedelta(0)) -> list[bool]:
        """Whether objects that were deleted so long ago are let through."""
        at = await self.engine.now() - int(ago / timedelta(milliseconds=1))
        return await self.ask_at(at, *uids)

    async def ask_at(self, at: int, *uids: str) -> list[bool]:
        answers = await self.guard.admit(self.source, [DeletedObject(uid, at) for uid in uids], self.settings)
        assert all(answer.admitted == (answer.reason == "") for answer in answers)
        return [answer.admitted for answer in answers]

    async def release(self) -> bool:
        return await self.guard.release(self.source, "tests")


@pytest.fixture
def guarded(engine: EngineUnderTest) -> SourceGuard:
    return SourceGuard(engine)


@pytest.fixture
async def embedded_engine(embedded_server: TestServer) -> AsyncIterator[EngineUnderTest]:
    made = EngineUnderTest(embedded_server.server, embedded_server.settings())
    await made.arrive()
    try:
        yield made
    finally:
        await made.close()


def some(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


async def source_of(engine: EngineUnderTest, source: str = SOURCE) -> dict[str, str]:
    return await engine.hash(f"{engine.installation.shards[0].stem}source:{source}")


@pytest.mark.every_server
async def test_beyond_the_limit_everything_new_is_held_and_what_was_let_through_stays_so(guarded: SourceGuard) -> None:
    assert await guarded.ask("a", "b") == [True, True]
    assert await guarded.ask("c", "d", "e") == [True, False, False]
    assert await guarded.ask("f", "a", "c", "d") == [False, True, True, False]
    (answer,) = await guarded.guard.admit(SOURCE, [DeletedObject("g", 0)], THREE)
    assert answer.reason.startswith(f"{PREFIX}more than 3 deletions of source {SOURCE} within 1h (most 3)")


async def test_an_object_counts_once_however_often_it_is_asked_for(guarded: SourceGuard) -> None:
    assert await guarded.ask("a", "a", "b", "a") == [True] * 4
    for _ in range(5):
        assert await guarded.ask("a", "b") == [True, True]
    assert await guarded.ask("c", "d") == [True, False]


@pytest.mark.every_server
async def test_all_processes_share_one_count(engine: EngineUnderTest) -> None:
    """Whoever asks at the same moment, exactly so many are let through."""
    settings = GuardSettings(most=20, percent=100, window=HOUR)
    guards = [Guard(engine.install()) for _ in range(4)]
    asks = [guards[number % 4].admit(SOURCE, [DeletedObject(f"u{number // 2}", 0)], settings) for number in range(120)]
    answers = await asyncio.gather(*asks)
    let_through = {number // 2 for number, (answer,) in enumerate(answers) if answer.admitted}
    held = {number // 2 for number, (answer,) in enumerate(answers) if not answer.admitted}
    assert (len(let_through), len(held), let_through & held) == (20, 40, set())


async def test_what_is_asked_at_one_time_goes_in_few_calls(engine: EngineUnderTest) -> None:
    installation = engine.install()
    calls, move = list[str](), installation.caller.move

    async def counted(name: str, *args: object, **options: object) -> bytes:
        calls.append(name)
        return await move(name, *args, **options)  # type: ignore[arg-type]

    installation.caller.move = counted  # type: ignore[method-assign]
    guard, settings = Guard(installation), GuardSettings(most=1000, percent=100)
    answers = await asyncio.gather(*(guard.admit(SOURCE, [DeletedObject(f"u{n}", 0)], settings) for n in range(300)))
    assert all(answer.admitted for (answer,) in answers)
    assert len(calls) <= 3


async def test_a_caller_that_gives_up_cancels_no_other_callers_answer(guarded: SourceGuard) -> None:
    first = asyncio.ensure_future(guarded.guard.admit(SOURCE, [DeletedObject("a", 0)], THREE))
    second = asyncio.ensure_future(guarded.guard.admit(SOURCE, [DeletedObject("b", 0), DeletedObject("c", 0)], THREE))
    await asyncio.sleep(0)
    first.cancel()
    assert [answer.admitted for answer in await second] == [True, True]
    assert await guarded.ask("d") == [False]


@pytest.mark.parametrize("ago", [timedelta(minutes=61), 30 * 24 * HOUR])
async def test_a_mass_deletion_trips_it_however_long_ago_it_was(guarded: SourceGuard, ago: timedelta) -> None:
    """No worker ran for longer than the window; objects deleted together are found together."""
    first, later = some("first", 300), some("later", 300)
    assert await guarded.ask(*first, ago=ago) == [True] * 3 + [False] * 297
    assert await guarded.ask(*later, "other", ago=ago) == [False] * 301
    (view,) = await guarded.guard.status()
    assert (view.tripped is not None, view.counted, view.held) == (True, 3, 598)
    await guarded.release()
    assert await guarded.ask(*first, *later, ago=ago) == [True] * 600


async def test_a_mass_deletion_of_long_ago_that_comes_in_pieces_trips_it(guarded: SourceGuard) -> None:
    long_ago = await guarded.engine.now() - 9 * 86_400_000
    for number in range(3):
        assert await guarded.ask_at(long_ago, f"u{number}") == [True]
        await guarded.engine.jump(24 * HOUR)
    assert await guarded.ask_at(long_ago, "u3") == [False]


async def test_what_was_deleted_in_other_windows_does_not_count(guarded: SourceGuard) -> None:
    for number in range(20, 0, -1):
        past = number * timedelta(minutes=61)
        assert await guarded.ask(*(f"{number}.{one}" for one in range(3)), ago=past) == [True] * 3
    assert await guarded.ask("a", "b", "c", "d") == [True, True, True, False]


@pytest.mark.parametrize("order", [(100, 100, 60, 60, 80), (60, 60, 100, 100, 80), (60, 80, 80, 100, 100)])
async def test_in_whatever_order_they_are_asked_for_a_window_has_no_more_than_its_limit(
    engine: EngineUnderTest, order: tuple[int, ...]
) -> None:
    guarded = SourceGuard(engine, GuardSettings(most=4, percent=100, window=HOUR))
    answers = [await guarded.ask(f"u{n}", ago=timedelta(minutes=minutes)) for n, minutes in enumerate(order)]
    assert answers == [[True]] * 4 + [[False]]


async def test_the_window_moves_on(guarded: SourceGuard) -> None:
    assert await guarded.ask("a", "b") == [True, True]
    await guarded.engine.jump(HOUR / 2)
    assert await guarded.ask("c") == [True]
    await guarded.engine.jump(HOUR / 2 + timedelta(minutes=1))
    # The first two have left it, the third has not.
    assert await guarded.ask("d", "e", "f") == [True, True, False]


async def test_an_object_counts_by_when_it_was_deleted_not_by_when_it_is_asked_for(guarded: SourceGuard) -> None:
    assert await guarded.ask("a", "b", "c", ago=timedelta(minutes=50)) == [True] * 3
    await guarded.engine.jump(timedelta(minutes=11))
    assert await guarded.ask("d", "e", "f") == [True] * 3


async def test_once_tripped_time_alone_frees_nothing(guarded: SourceGuard) -> None:
    assert await guarded.ask(*some("u", 4)) == [True, True, True, False]
    await guarded.engine.jump(10 * HOUR)
    assert await guarded.ask("u3", "new") == [False, False]
    # Nor is an old deletion that was never presented to the guard let through.
    assert await guarded.ask("old", ago=30 * HOUR) == [False]


async def test_a_release_lets_through_what_was_held_and_counts_anew(guarded: SourceGuard) -> None:
    assert await guarded.ask(*some("u", 50)) == [True] * 3 + [False] * 47
    assert await guarded.release() is True
    assert await guarded.ask(*some("u", 50)) == [True] * 50
    assert await guarded.engine.members(f"guarded:{SOURCE}") == {}
    assert await guarded.ask(*some("new", 4)) == [True, True, True, False]
    # What was released stays so, though the guard has tripped again.
    assert await guarded.ask("u7", "u49", "new0", "new9") == [True, True, True, False]
    assert await guarded.release() is True
    assert await guarded.release() is False


async def test_what_was_held_comes_through_after_a_release_though_the_next_mistake_trips_it_first(
    guarded: SourceGuard,
) -> None:
    assert await guarded.ask(*some("u", 10)) == [True] * 3 + [False] * 7
    await guarded.release()
    assert await guarded.ask(*some("new", 5)) == [True] * 3 + [False] * 2
    assert await guarded.ask(*some("u", 10)) == [True] * 10
    assert await guarded.ask("new4") == [False]


async def test_a_release_covers_nothing_that_the_guard_had_not_seen(guarded: SourceGuard) -> None:
    assert await guarded.ask(*some("u", 4)) == [True] * 3 + [False]
    await guarded.release()
    answers = await guarded.ask(*some("unseen", 5), ago=timedelta(minutes=10))
    assert answers == [True] * 3 + [False] * 2


async def test_a_release_of_a_guard_that_has_not_tripped_changes_nothing(guarded: SourceGuard) -> None:
    assert await guarded.ask("a", "b") == [True, True]
    assert await guarded.release() is False
    assert await guarded.ask("c", "d") == [True, False]


async def test_a_time_in_the_future_counts_from_when_it_is_first_seen(guarded: SourceGuard) -> None:
    """With a grace period the API server writes when it will be over."""
    later = await guarded.engine.now() + 600_000
    assert await guarded.ask_at(later, *some("u", 5)) == [True] * 3 + [False] * 2
    await guarded.release()
    assert await guarded.ask_at(later, *some("u", 5)) == [True] * 5
    await guarded.engine.jump(HOUR + timedelta(minutes=1))
    assert await guarded.ask("a", "b", "c", "d") == [True] * 3 + [False]


async def test_an_unknown_time_counts_as_now(guarded: SourceGuard) -> None:
    assert await guarded.ask_at(0, *some("u", 4)) == [True] * 3 + [False]


async def test_a_clock_that_went_back_lets_nothing_pass_uncounted(guarded: SourceGuard) -> None:
    assert await guarded.ask(*some("u", 9)) == [True] * 3 + [False] * 6
    await guarded.engine.jump(-3 * HOUR)
    await guarded.release()
    assert await guarded.ask(*some("u", 9)) == [True] * 9
    assert await guarded.ask(*some("new", 4)) == [True] * 3 + [False]
    assert await guarded.ask("new3") == [False]


async def test_sources_are_counted_apart(engine: EngineUnderTest) -> None:
    one, other = SourceGuard(engine, source="one"), SourceGuard(engine, source="other")
    assert await one.ask(*some("u", 4)) == [True] * 3 + [False]
    assert await other.ask(*some("u", 3)) == [True] * 3
    await one.release()
    assert await other.ask("new") == [False]
    assert await one.ask("new") == [True]


async def test_the_percentage_is_of_what_the_source_owns_now(engine: EngineUnderTest) -> None:
    guarded = SourceGuard(engine, GuardSettings(most=100, percent=10, window=HOUR))
    key = f"{engine.installation.shards[0].stem}source:{SOURCE}"
    await engine.client.hset(key, mapping={"owned.0": 140, "owned.1": 160})
    assert await guarded.ask(*some("u", 31)) == [True] * 30 + [False]
    assert "10% of 300 owned" in (await source_of(engine))["guard_why"]
    await guarded.release()
    await engine.client.hset(key, "owned.1", 260)
    assert await guarded.ask(*some("new", 41)) == [True] * 40 + [False]


async def test_what_has_gone_does_not_make_the_limit_smaller(engine: EngineUnderTest) -> None:
    guarded = SourceGuard(engine, GuardSettings(most=1000, percent=100, window=HOUR))
    key = f"{engine.installation.shards[0].stem}source:{SOURCE}"
    for left in range(60, 0, -1):
        await engine.client.hset(key, "owned", left)
        assert await guarded.ask(f"u{left}") == [True]
    assert await guarded.ask("another") == [False]
    # A release begins anew, with what is there.
    await guarded.release()
    assert await guarded.ask(*some("new", 21)) == [True] * 20 + [False]


async def test_a_guard_that_is_off_lets_everything_through(engine: EngineUnderTest) -> None:
    guarded = SourceGuard(engine, GuardSettings(most=1, enabled=False))
    assert await guarded.ask(*some("u", 50)) == [True] * 50
    assert await source_of(engine) == {}


async def test_what_is_long_past_is_forgotten_a_step_at_a_time(guarded: SourceGuard) -> None:
    engine, stem = guarded.engine, guarded.engine.installation.shards[0].stem
    passed, counting = f"{stem}passed:{SOURCE}", f"{stem}guard:{SOURCE}"

    async def sizes() -> tuple[int, int]:
        return await engine.client.zcard(passed), await engine.client.zcard(counting)

    guarded.settings = GuardSettings(most=3000, percent=100, window=HOUR)
    assert all(await guarded.ask(*some("u", 1200)))
    await engine.jump(timedelta(days=6))
    await guarded.ask("a", "u0")
    assert await sizes() == (1201, 1201)
    await engine.jump(timedelta(days=2))
    await guarded.ask("b")
    assert await sizes() == (202, 202)
    # Who was asked for since is still known.
    await guarded.ask("c")
    assert await sizes() == (4, 4)
    assert await engine.client.zscore(passed, "u0") is not None


async def test_the_numbers_and_the_audit_tell_of_it(guarded: SourceGuard) -> None:
    engine = guarded.engine
    await guarded.ask(*some("u", 8))
    await guarded.ask(*some("u", 8))
    stats = await engine.stats()
    assert (stats["guard_tripped"], stats[f"guard/{SOURCE}/tripped"]) == (1, 1)
    assert (stats[f"guard/{SOURCE}/held"], stats[f"guard/{SOURCE}/counted"]) == (5, 3)
    assert await engine.decisions("guard tripped") == [SOURCE]
    (view,) = await guarded.guard.status()
    assert (view.source, view.held, view.counted, view.limit) == (SOURCE, 5, 3, None)
    assert view.tripped is not None
    await guarded.release()
    stats = await engine.stats()
    assert (stats["guard_tripped"], stats[f"guard/{SOURCE}/tripped"], stats[f"guard/{SOURCE}/held"]) == (0, 0, 0)
    assert await engine.decisions("guard released") == [SOURCE]
    (view,) = await guarded.guard.status()
    assert (view.tripped, view.held, view.counted, view.released_by) == (None, 0, 0, "tests")


async def test_healing_after_a_lost_redis_does_not_trip_it(own_engine: EngineUnderTest) -> None:
    """Everything is asked for anew in any order, with the times at which it was deleted, which were spread out."""
    guarded, dice = SourceGuard(own_engine), random.Random(5)
    now = await own_engine.now()
    # As many as may be in every window of three days, the last of them a moment ago.
    deleted = {f"u{number}.{one}": now - number * 3_600_000 for number in range(72) for one in range(3)}
    for uid, at in sorted(deleted.items(), key=lambda one: one[1]):
        assert await guarded.ask_at(at, uid) == [True]
    await own_engine.client.flushall()
    for uid in dice.sample(sorted(deleted), len(deleted)):
        assert await guarded.ask_at(deleted[uid], uid) == [True]
    assert await own_engine.decisions("guard tripped") == []
    # A mistake after that is stopped all the same.
    assert await guarded.ask("new") == [False]


async def test_what_had_tripped_it_trips_it_again_after_a_lost_redis_however_late(own_engine: EngineUnderTest) -> None:
    guarded = SourceGuard(own_engine)
    now = await own_engine.now()
    assert await guarded.ask_at(now, *some("u", 600)) == [True] * 3 + [False] * 597
    await own_engine.jump(5 * HOUR)
    await own_engine.client.flushall()
    assert await guarded.ask_at(now, *some("u", 600)) == [True] * 3 + [False] * 597


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_the_limit_holds_between_two_releases(
    embedded_engine: EngineUnderTest, seed: int
) -> None:
    dice, engine, guarded = random.Random(seed), embedded_engine, SourceGuard(embedded_engine)
    deleted: dict[str, int] = {}
    passed: dict[str, int] = {}
    held: set[str] = set()
    freed: set[str] = set()
    released_at = 0
    for step in range(150):
        now = await engine.now()
        match dice.choices(("new", "old", "again", "jump", "release"), (5, 2, 4, 3, 1))[0]:
            case "new":
                deleted |= {f"{step}.{n}": now - dice.randrange(1200) * 1000 for n in range(dice.randrange(1, 4))}
            case "old":
                deleted[f"{step}.old"] = now - dice.randrange(60, 600) * 60_000
            case "jump":
                await engine.jump(timedelta(minutes=dice.randrange(1, 45)))
            case "release":
                if await guarded.release():
                    released_at = await engine.now()
                    freed |= held
        for uid in dice.sample(sorted(deleted), min(len(deleted), 6)):
            (through,) = await guarded.ask_at(deleted[uid], uid)
            assert through or uid not in passed, "what was let through stays so"
            assert through or uid not in freed, "what a person released comes through"
            if through and uid not in passed:
                passed[uid] = await engine.now()
            if not through:
                held.add(uid)
        tripped = "guard_tripped" in await source_of(engine)
        # Those that count: first let through after the last release, and not released. A window that is filled from
        # both sides is looked at in eighths.
        counting = sorted(deleted[uid] for uid, when in passed.items() if when >= released_at and uid not in freed)
        for fourth, first in zip(counting[3:], counting, strict=False):
            assert fourth - first >= 3_600_000 * 7 // 8 - 5_000
        assert tripped or held <= set(passed) | freed, "nothing is held by a guard that has not tripped"
    assert held, "a walk that never trips it shows nothing"


# ---- through planners


class GuardedPlanner(ScriptedProvider):
    """A planner that asks the guard before it plans, as the one of a watched source does."""

    def watch(self, guarded: SourceGuard, deleted_at: int) -> None:
        async def judge(one: Event) -> Plan | Hold:
            (answer,) = await guarded.guard.admit(one.source, [DeletedObject(one.uid, deleted_at)], guarded.settings)
            return Plan([thing(one.uid)]) if answer.admitted else Hold(answer.reason)

        self.judge = judge

    async def plan(self, event: Event) -> Plan | Hold:
        self.plans.setdefault(event.uid, self.judge)
        return await ScriptedProvider.plan(self, event)


async def test_what_the_guard_held_is_planned_again_and_done_after_a_release(embedded_server: TestServer) -> None:
    engine = EngineUnderTest(embedded_server.server, embedded_server.settings(shards=3))
    await engine.arrive()
    try:
        guarded, provider = SourceGuard(engine), GuardedPlanner(plans={"odd": Hold("no such account")})
        provider.watch(guarded, await engine.now())
        await engine.start(provider)
        going = [event(uid) for uid in some("u", 40)]
        stranger = event("stranger", source="other")
        await engine.publish(*going, event("odd"), stranger)
        await engine.until_done(stranger)

        async def held() -> bool:
            return len(await engine.members("held")) == 38

        await engine.until("all but three are held, and the odd one", held)
        assert len(provider.called) <= 4
        found = await guarded.guard.held(SOURCE)
        assert len(found) == 37
        assert {one.deletion for one in found} <= {one.deletion for one in going}
        # Planned again without a release, it is held again.
        assert await guarded.guard.replay(found[:5], "tests") == 5
        await engine.until("they are held again", held)
        assert await guarded.release() is True
        assert await guarded.guard.replay(await guarded.guard.held(SOURCE), "tests") == 37
        await engine.until_done(*going)
        assert sorted(provider.called) == sorted([one.uid for one in going] + ["stranger"])
        assert list(await engine.members("held")) == [f"deletion:{event('odd').deletion}"]
        assert await guarded.guard.held(SOURCE) == []
    finally:
        await engine.close()


# ---- who only wants to know


@pytest.mark.parametrize("seed", range(4))
async def test_a_preview_gives_the_answer_that_the_guard_gives_later(
    embedded_engine: EngineUnderTest, seed: int
) -> None:
    """Whatever was deleted when, in whatever order it comes, and whatever was released meanwhile."""
    chance = random.Random(seed)
    guarded = SourceGuard(embedded_engine, GuardSettings(most=4, percent=100, window=HOUR))
    said, found = list[bool](), list[bool]()
    for number in range(80):
        at = await embedded_engine.now() - chance.randrange(1, 12 * 3_600_000)
        uid = f"u{number if chance.random() < 0.8 else chance.randrange(number + 1)}"
        seen = await guard_forecast(embedded_engine.installation, SOURCE, DeletedObject(uid, at), guarded.settings)
        assert seen.holds == bool(seen.why)
        said.append(not seen.holds)
        found += await guarded.ask_at(at, uid)
        if chance.random() < 0.1:
            await guarded.release()
    assert said == found
    assert set(found) == {True, False}
