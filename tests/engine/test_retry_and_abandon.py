"""Retry and abandon of a job by an operator; each is recorded in the audit."""

from datetime import timedelta

import pytest

from service.contract import Blocked, Gone
from tests.engine.engine_under_test import LEASE, EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

SECOND = timedelta(seconds=1)


async def test_a_retry_makes_a_waiting_job_due_and_counts_its_attempts_anew(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("one")]))["one"]
    for _ in range(3):
        taken = await engine.take(one, "hand", LANE)
        await engine.settle(taken, "hand", OSError("no"))
        await engine.jump(SECOND)
    assert (await engine.job(job))["attempts"] == "3"
    taken = await engine.take(one, "hand", LANE)
    await engine.settle(taken, "hand", Blocked("in use", timedelta(hours=1)))
    assert not (await engine.take(one, "hand", LANE)).lanes
    assert await engine.shard(one).retry(job, "ann") == "due"
    record = await engine.job(job)
    assert record.get("attempts", "0") == "0"
    assert float(record["due"]) <= await engine.now()
    assert (await engine.take(one, "hand", LANE)).lanes[0].jobs == [job]
    (decision,) = [entry for entry in await engine.audit("decision") if entry["what"] == "retried"]
    assert (decision["id"], decision["why"]) == (job, "by ann")


async def test_a_retry_says_why_it_can_not_be(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("one"), thing("two", stage=1)])
    shard = engine.shard(one)
    assert await shard.retry(jobs["two"], "ann") == "waiting"
    assert await shard.retry(f"{one.deletion}#1.99", "ann") == "unknown"
    assert await shard.retry("c1/things/nobody/1#1.0", "ann") == "unknown"
    taken = await engine.take(one, "hand", LANE)
    assert await shard.retry(jobs["one"], "ann") == "leased"
    await engine.settle(taken, "hand", Gone())
    assert await shard.retry(jobs["one"], "ann") == "gone"
    assert not await engine.decisions("retried")


@pytest.mark.every_server
async def test_an_abandoned_job_is_given_up_and_the_stage_goes_on_without_it(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    jobs = await engine.lay(one, [thing("stuck", after=timedelta(days=1)), thing("next", stage=1)])
    assert await engine.shard(one).abandon(jobs["stuck"], "ann") == "abandoned"
    record = await engine.job(jobs["stuck"])
    assert (record["state"], record["last_error"]) == ("abandoned", "abandoned by ann")
    assert await engine.shard(one).abandon(jobs["stuck"], "ann") == "abandoned"
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["next"]
    assert (await engine.deletion(one))["abandoned"] == "1"
    assert await engine.decisions("abandoned") == [jobs["stuck"]]


async def test_a_job_may_be_abandoned_before_its_stage_opens(engine: EngineUnderTest) -> None:
    provider, one = ScriptedProvider(), event("a")
    jobs = await engine.lay(one, [thing("one"), thing("two", stage=1), thing("three", stage=2)])
    assert await engine.shard(one).abandon(jobs["two"], "ann") == "abandoned"
    await engine.start(provider)
    await engine.until_done(one)
    assert provider.called == ["one", "three"]


async def test_a_job_that_is_set_aside_may_be_abandoned(engine: EngineUnderTest) -> None:
    one = event("a")
    job = (await engine.lay(one, [thing("poison")]))["poison"]
    await engine.take(one, "w0", LANE)
    for death in range(1, 5):
        await engine.jump(LEASE + SECOND)
        await engine.shard(one).reclaim(silence=LEASE / 2)
        await engine.jump(10 * SECOND)
        await engine.take(one, f"w{death}", LANE, alone=job)
    assert list(await engine.members("dead")) == [job]
    assert await engine.shard(one).abandon(job, "ann") == "abandoned"
    assert not await engine.members("dead")
    await engine.start()
    await engine.until_done(one)


async def test_the_release_can_not_be_abandoned(engine: EngineUnderTest) -> None:
    one = event("a")
    await engine.lay(one, [thing("one")])
    *_, release = await engine.jobs_of(one)
    assert await engine.shard(one).abandon(release, "ann") == "release"
    await engine.start()
    await engine.until_done(one)
    assert await engine.shard(one).abandon(release, "ann") == "gone"
    assert await engine.shard(one).abandon(f"{one.deletion}#7.0", "ann") == "unknown"
