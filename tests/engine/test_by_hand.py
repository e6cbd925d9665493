"""What a person may do with a job: have it tried now, or give it up; each leaves a decision in the audit."""

from datetime import timedelta

import pytest

from service.contract import Blocked, Gone
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import LEASE, World

SECOND = timedelta(seconds=1)


async def test_a_retry_makes_a_waiting_job_due_and_counts_its_attempts_anew(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("one")]))["one"]
    for _ in range(3):
        taken = await world.take(one, "hand", LANE)
        await world.settle(taken, "hand", OSError("no"))
        await world.jump(SECOND)
    assert (await world.job(job))["attempts"] == "3"
    taken = await world.take(one, "hand", LANE)
    await world.settle(taken, "hand", Blocked("in use", timedelta(hours=1)))
    assert not (await world.take(one, "hand", LANE)).lanes
    assert await world.shard(one).retry(job, "ann") == "due"
    record = await world.job(job)
    assert record.get("attempts", "0") == "0"
    assert float(record["due"]) <= await world.now()
    assert (await world.take(one, "hand", LANE)).lanes[0].jobs == [job]
    (decision,) = [entry for entry in await world.audit("decision") if entry["what"] == "retried"]
    assert (decision["id"], decision["why"]) == (job, "by ann")


async def test_a_retry_says_why_it_can_not_be(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("one"), thing("two", stage=1)])
    shard = world.shard(one)
    assert await shard.retry(jobs["two"], "ann") == "waiting"
    assert await shard.retry(f"{one.deletion}#1.99", "ann") == "unknown"
    assert await shard.retry("c1/things/nobody/1#1.0", "ann") == "unknown"
    taken = await world.take(one, "hand", LANE)
    assert await shard.retry(jobs["one"], "ann") == "leased"
    await world.settle(taken, "hand", Gone())
    assert await shard.retry(jobs["one"], "ann") == "gone"
    assert not await world.decisions("retried")


@pytest.mark.every_server
async def test_an_abandoned_job_is_given_up_and_the_stage_goes_on_without_it(world: World) -> None:
    outside, one = Outside(), event("a")
    jobs = await world.lay(one, [thing("stuck", after=timedelta(days=1)), thing("next", stage=1)])
    assert await world.shard(one).abandon(jobs["stuck"], "ann") == "abandoned"
    record = await world.job(jobs["stuck"])
    assert (record["state"], record["last_error"]) == ("abandoned", "abandoned by ann")
    assert await world.shard(one).abandon(jobs["stuck"], "ann") == "abandoned"
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["next"]
    assert (await world.deletion(one))["abandoned"] == "1"
    assert await world.decisions("abandoned") == [jobs["stuck"]]


async def test_a_job_may_be_abandoned_before_its_stage_opens(world: World) -> None:
    outside, one = Outside(), event("a")
    jobs = await world.lay(one, [thing("one"), thing("two", stage=1), thing("three", stage=2)])
    assert await world.shard(one).abandon(jobs["two"], "ann") == "abandoned"
    await world.start(outside)
    await world.until_done(one)
    assert outside.called == ["one", "three"]


async def test_a_job_that_is_set_aside_may_be_abandoned(world: World) -> None:
    one = event("a")
    job = (await world.lay(one, [thing("poison")]))["poison"]
    await world.take(one, "w0", LANE)
    for death in range(1, 5):
        await world.jump(LEASE + SECOND)
        await world.shard(one).reclaim(silence=LEASE / 2)
        await world.jump(10 * SECOND)
        await world.take(one, f"w{death}", LANE, alone=job)
    assert list(await world.members("dead")) == [job]
    assert await world.shard(one).abandon(job, "ann") == "abandoned"
    assert not await world.members("dead")
    await world.start()
    await world.until_done(one)


async def test_the_release_can_not_be_abandoned(world: World) -> None:
    one = event("a")
    await world.lay(one, [thing("one")])
    *_, release = await world.jobs_of(one)
    assert await world.shard(one).abandon(release, "ann") == "release"
    await world.start()
    await world.until_done(one)
    assert await world.shard(one).abandon(release, "ann") == "gone"
    assert await world.shard(one).abandon(f"{one.deletion}#7.0", "ann") == "unknown"
