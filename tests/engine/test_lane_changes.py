"""Jobs that continue in another lane: what they carry along, and whose limits they use there."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from service.contract import FINALLY, Blocked, Draw, Event, Gone, Job, Limit, Pause, Pending, Target, Throttled, Verdict
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import Act, ScriptedProvider, event, thing
from workers.handlers.protocol import Batch
from workers.handlers.registry import HandlerRegistry

DELETE, CHECK = "sim/acct/delete", "sim/acct/list"
DELETES, LISTS = Limit.bucket("deletes", 10, rate=0.001), Limit.bucket("lists", 10, rate=0.001)
AT_ONCE, HOUR = timedelta(0), timedelta(hours=1)
TICKET = json.dumps({"kind": "thing", "id": "it came back"})


def only(lane: str, limit: Limit) -> Callable[[str], Sequence[Draw] | None]:
    return lambda asked: (Draw(limit),) if asked == lane else None


def both() -> tuple[ScriptedProvider, ScriptedProvider]:
    """Who removes things, and who checks that none is left: each declares what its own lane draws on."""
    return ScriptedProvider(draws_on=only(DELETE, DELETES)), ScriptedProvider(kind="check", draws_on=only(CHECK, LISTS))


def check(**fields: object) -> Target:
    return Target(kind="check", id="check", lane=CHECK, **fields)  # type: ignore[arg-type]


def hop(seen: list[tuple[str, str]], verdict: Verdict) -> Act:
    """An answer that notes in which lane it was asked for, and with what at hand."""

    async def answer(job: Job, batch: Batch) -> Verdict:
        seen.append((batch.lane, job.resume))
        return verdict

    return answer


async def left(engine: EngineUnderTest, limit: Limit) -> float:
    return round(float((await engine.budget())[f"{limit.name}|tokens"]), 1)


def test_the_draws_of_a_lane_are_declared_by_the_handler_that_knows_it() -> None:
    things, checks = both()
    for order in ([things, checks], [checks, things]):
        registry = HandlerRegistry(order, {})
        assert registry.draws(DELETE) == (Draw(DELETES),)
        assert registry.draws(CHECK) == (Draw(LISTS),)


def test_two_handlers_of_the_same_kind_are_an_error() -> None:
    things, checks = both()
    other, _ = both()
    with pytest.raises(ValueError, match=f"two handlers of kind {things.kind}"):
        HandlerRegistry([things, checks, other], {})


async def test_a_check_that_hops_into_the_lane_of_another_kind_draws_on_that_lanes_limits(
    engine: EngineUnderTest,
) -> None:
    things, checks = both()
    seen = list[tuple[str, str]]()
    checks.answers["check"] = [
        hop(seen, Pending(AT_ONCE, lane=DELETE, resume=TICKET)),
        hop(seen, Pending(AT_ONCE, lane=CHECK)),
        hop(seen, Gone("the list is empty")),
    ]
    one = event("a")
    await engine.lay(one, [thing("one", DELETE), check(chain=FINALLY)])
    await engine.start(things, others=[checks])
    await engine.until_done(one)
    assert seen == [(CHECK, ""), (DELETE, TICKET), (CHECK, "")]
    assert things.called == ["one"]
    assert await left(engine, DELETES) == 8
    assert await left(engine, LISTS) == 8


async def test_jobs_of_two_kinds_in_one_lane_are_taken_together_and_handed_to_each_ones_handler(
    engine: EngineUnderTest,
) -> None:
    things, checks = both()
    one = event("a")
    await engine.lay(one, [*(thing(f"t{number}", DELETE) for number in range(3)), check(chain="other")])
    taken = await engine.take(one, "hand", CHECK)
    assert await engine.settle(taken, "hand", Pending(AT_ONCE, lane=DELETE, resume=TICKET)) == [True]
    await engine.start(things, others=[checks])
    await engine.until_done(one)
    assert things.batches == [(DELETE, ["t0", "t1", "t2"])]
    assert checks.batches == [(DELETE, ["check"])]
    assert await left(engine, DELETES) == 6


@pytest.mark.parametrize("urgent", [1, 0], ids=["urgent", "background"])
async def test_a_hop_keeps_how_urgent_it_is_and_what_is_at_hand(engine: EngineUnderTest, urgent: int) -> None:
    one = event("a", urgent=urgent)
    job = (await engine.lay(one, [check()]))["check"]
    taken = await engine.take(one, "hand", CHECK)
    await engine.settle(taken, "hand", Pending(timedelta(seconds=9), lane=DELETE, resume=TICKET))
    own, other = (":urgent", "") if urgent else ("", ":urgent")
    assert list(await engine.members(f"lane:{DELETE}{own}")) == [job]
    assert not await engine.members(f"lane:{DELETE}{other}")
    assert not await engine.queue(CHECK)
    record = await engine.job(job)
    assert (record["lane"], record["resume"], record["kind"]) == (DELETE, TICKET, "check")
    assert float(record["due"]) == (await engine.queue(DELETE))[job]


async def waits_in(engine: EngineUnderTest, one: Event, lane: str) -> str:
    """What a job has at hand where it waits."""
    ((job, _),) = (await engine.queue(lane)).items()
    assert job.startswith(one.deletion)
    return (await engine.job(job)).get("resume", "")


@pytest.mark.parametrize(
    "verdict", [Throttled(HOUR), Blocked("a neighbour", HOUR), OSError("away")], ids=["throttled", "blocked", "failed"]
)
async def test_what_is_at_hand_stays_so_until_another_check_is_asked_for(
    engine: EngineUnderTest, verdict: Verdict | Exception
) -> None:
    one = event("a")
    await engine.lay(one, [check()])
    for said in (Pending(AT_ONCE, lane=DELETE, resume=TICKET), verdict):
        lane = CHECK if isinstance(said, Pending) else DELETE
        await engine.settle(await engine.take(one, "hand", lane), "hand", said)
    assert await waits_in(engine, one, DELETE) == TICKET
    await engine.jump(2 * HOUR)
    await engine.settle(await engine.take(one, "hand", DELETE), "hand", Pending(AT_ONCE, lane=CHECK))
    assert await waits_in(engine, one, CHECK) == ""


async def test_a_guest_that_is_refused_for_want_of_quota_tells_the_lane_it_is_in(engine: EngineUnderTest) -> None:
    things, checks = both()

    async def throttled(job: Job, batch: Batch) -> Verdict:
        batch.report_quota(Pause(DELETES.name, HOUR))
        return Throttled(HOUR)

    checks.answers["check"] = [hop([], Pending(AT_ONCE, lane=DELETE, resume=TICKET)), throttled]
    one = event("a")
    await engine.lay(one, [check()])
    await engine.start(things, others=[checks])

    async def paused() -> bool:
        budget = await engine.budget()
        return float(budget.get(f"{DELETES.name}|pause", 0)) > await engine.now() + 3_000_000

    await engine.until("its limit is paused", paused)
    assert float((await engine.budget())[f"{LISTS.name}|pause"]) == 0
