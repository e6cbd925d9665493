"""Records that can't be read, and records of a newer version: kept, shown, counted, and never in the way."""

from datetime import timedelta

import pytest

from service.contract import Event
from tests.engine.outside import LANE, Outside, event, thing
from tests.engine.world import World

GOOD = {b"v": b"1", b"cluster": b"c1", b"resource": b"things", b"uid": b"x", b"name": b"n", b"source": b"tests"}

UNREADABLE = {
    "bytes that are no text": (GOOD | {b"data": b"\xff\xfe\x00"}, "not UTF-8"),
    "a missing field": ({name: value for name, value in GOOD.items() if name != b"uid"}, "uid"),
    "no version": ({name: value for name, value in GOOD.items() if name != b"v"}, "field v"),
    "a version that is no number": (GOOD | {b"v": b"one"}, "field v"),
    "an unknown field": (GOOD | {b"colour": b"red"}, "colour"),
    "a wrong value": (GOOD | {b"reason": b"bored"}, "bored"),
    "a uid with a slash": (GOOD | {b"uid": b"a/b"}, "uid"),
    "a round below one": (GOOD | {b"round": b"0"}, "round"),
}


@pytest.mark.invariant(7)
@pytest.mark.parametrize("what", UNREADABLE)
async def test_an_event_that_can_not_be_read_is_kept_whole_and_the_stream_goes_on(world: World, what: str) -> None:
    raw, reason = UNREADABLE[what]
    outside = Outside()
    shard = world.shard(event("good"))
    entry = (await world.client.xadd(shard.stem + "events", raw)).decode()
    await world.publish(event("good"))
    await world.start(outside)
    await world.until_done(event("good"))

    async def held() -> bool:
        return list(await world.members("held")) == [f"event:{entry}"]

    await world.until("the event is held", held)
    assert await world.client.hgetall(f"{shard.stem}kept:{entry}") == raw
    why = await world.hash(f"{shard.stem}why:{entry}")
    assert reason in why["why"]
    assert not await world.pending()
    assert entry not in await world.entries()
    assert outside.planned == ["good"]
    await world.tidy()
    stats = await world.stats()
    assert stats["held"] == 1
    assert stats["kept"] == 1
    assert await world.decisions("held") == [f"event:{entry}"]


async def test_a_held_event_that_a_person_mended_is_replayed(world: World) -> None:
    raw, _ = UNREADABLE["a missing field"]
    shard = world.shard(event("x"))
    entry = (await world.client.xadd(shard.stem + "events", raw)).decode()
    await world.start()

    async def held() -> bool:
        return bool(await world.members("held"))

    await world.until("the event is held", held)
    await world.client.hset(f"{shard.stem}kept:{entry}", "uid", "x")
    assert await shard.unhold(f"event:{entry}", replay=True, who="tests") == "replayed"
    await world.until_done(event("x"))
    assert not await world.members("held")
    assert not await world.client.exists(f"{shard.stem}kept:{entry}")
    assert not await world.client.exists(f"{shard.stem}why:{entry}")


async def test_a_held_event_that_is_dropped_leaves_nothing_behind(world: World) -> None:
    raw, _ = UNREADABLE["an unknown field"]
    shard = world.installation.shards[0]
    entry = (await world.client.xadd(shard.stem + "events", raw)).decode()
    await world.start()

    async def held() -> bool:
        return bool(await world.members("held"))

    await world.until("the event is held", held)
    assert await shard.unhold(f"event:{entry}", replay=False, who="tests") == "dropped"
    assert not await world.members("held")
    assert not await world.entries()
    assert not await world.client.exists(f"{shard.stem}kept:{entry}")
    assert await shard.unhold(f"event:{entry}", replay=False, who="tests") == "unknown"


async def _parked(world: World, one: Event) -> str:
    async def parked() -> list[str]:
        return list(await world.members("newer"))

    await world.publish(one)
    (member,) = await world.until("the event is parked", parked)
    return member


async def test_an_event_of_a_newer_version_is_parked_until_a_process_knows_it(world: World) -> None:
    outside = Outside()
    newer, good = event("later", v=2), event("good")
    await world.start(outside)
    member = await _parked(world, newer)
    await world.publish(good)
    await world.until_done(good)
    assert outside.planned == ["good"]
    assert not await world.pending()
    await world.tidy()
    assert (await world.stats())["newer"] == 1
    shard = world.shard(newer)
    assert await world.client.exists(f"{shard.stem}kept:{member.removeprefix('event:')}")

    for running in world.running:
        await running.crash()
    _, _, known = await shard.requeue(version=1)
    assert known == 0
    _, _, known = await shard.requeue(version=2)
    assert known == 1
    ((_, raw),) = await world.client.xrange(shard.stem + "events")
    assert raw == {str(name).encode(): str(value).encode() for name, value in newer.fields().items()}
    assert not await world.members("newer")
    assert not [key async for key in world.client.scan_iter(match=f"{shard.stem}kept:*")]
    assert not [key async for key in world.client.scan_iter(match=f"{shard.stem}why:*")]


async def test_a_parked_event_is_not_published_again_by_the_janitor(world: World) -> None:
    newer = event("later", v=2)
    running = await world.start()
    member = await _parked(world, newer)
    await running.crash()
    await world.jump(timedelta(minutes=10))
    await world.tidy()
    assert await world.entries() == []
    assert list(await world.members("newer")) == [member]

    shard = world.shard(newer)
    await shard.requeue(version=2)
    await world.jump(timedelta(minutes=10))
    await world.tidy()
    assert len(await world.entries()) == 1


async def test_a_job_of_a_newer_version_is_never_leased_and_comes_back_to_who_knows_it(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("old"), thing("new")])
    await world.rewrite(jobs["new"], v=2)
    shard = world.shard(one)

    taken = await world.take(one, "hand", LANE)
    assert [lane.jobs for lane in taken.lanes] == [[jobs["old"]]]
    assert list(await world.leases(LANE)) == [jobs["old"]]
    (intent,) = await world.audit("intent")
    assert intent["jobs"] == jobs["old"]
    assert list(await world.members("newer")) == [f"job:{jobs['new']}"]
    await world.tidy()
    assert (await world.stats())["newer"] == 1
    assert jobs["new"] not in await world.queue(LANE)

    _, _, known = await shard.requeue(version=2)
    assert known == 1
    assert not await world.members("newer")
    taken = await world.take(one, "newcomer", LANE, version=2)
    assert [lane.jobs for lane in taken.lanes] == [[jobs["new"]]]


async def test_a_worker_passes_by_a_newer_job_and_gives_its_tokens_back(world: World) -> None:
    outside = Outside()
    one = event("a")
    jobs = await world.lay(one, [thing("old"), thing("new")])
    await world.rewrite(jobs["new"], v=2)
    await world.start(outside)

    async def gone() -> bool:
        return (await world.job(jobs["old"])).get("state") == "gone"

    await world.until("the job of our version is gone", gone)
    assert outside.called == ["old"]
    await world.rewrite(jobs["new"], v=1)
    await world.shard(one).requeue()
    await world.until_done(one)


async def test_a_job_whose_record_can_not_be_read_is_set_aside_as_it_is(world: World) -> None:
    outside = Outside()
    one = event("a")
    jobs = await world.lay(one, [thing("good"), thing("bad")])
    broken = '{"v":1,"stage":0,"lane":"sim/acct/delete","kind":7,"target":["no"]}'
    await world.rewrite(jobs["bad"], broken)
    await world.start(outside)

    async def aside() -> bool:
        return list(await world.members("dead")) == [jobs["bad"]] and not await world.leases(LANE)

    await world.until("the job is set aside and the other one settled", aside)
    assert list(await world.members("held")) == [f"job:{jobs['bad']}"]
    assert not await world.leases(LANE)
    plan, _, number = jobs["bad"].rpartition(".")
    assert (await world.client.hget(world.shard(one).stem + "job:" + plan, number)).decode() == broken
    assert await world.decisions("set aside") == [jobs["bad"]]
