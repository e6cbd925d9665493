"""Undecodable records and records of a newer version: kept, shown, counted, and never blocking others."""

from datetime import timedelta

import pytest

from service.contract import Event
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import LANE, ScriptedProvider, event, thing

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
async def test_an_event_that_can_not_be_read_is_kept_whole_and_the_stream_goes_on(
    engine: EngineUnderTest, what: str
) -> None:
    raw, reason = UNREADABLE[what]
    provider = ScriptedProvider()
    shard = engine.shard(event("good"))
    entry = (await engine.client.xadd(shard.stem + "events", raw)).decode()
    await engine.publish(event("good"))
    await engine.start(provider)
    await engine.until_done(event("good"))

    async def held() -> bool:
        return list(await engine.members("held")) == [f"event:{entry}"]

    await engine.until("the event is held", held)
    assert await engine.client.hgetall(f"{shard.stem}kept:{entry}") == raw
    why = await engine.hash(f"{shard.stem}why:{entry}")
    assert reason in why["why"]
    assert not await engine.pending()
    assert entry not in await engine.entries()
    assert provider.planned == ["good"]
    await engine.tidy()
    stats = await engine.stats()
    assert stats["held"] == 1
    assert stats["kept"] == 1
    assert await engine.decisions("held") == [f"event:{entry}"]


async def test_a_held_event_that_a_person_mended_is_replayed(engine: EngineUnderTest) -> None:
    raw, _ = UNREADABLE["a missing field"]
    shard = engine.shard(event("x"))
    entry = (await engine.client.xadd(shard.stem + "events", raw)).decode()
    await engine.start()

    async def held() -> bool:
        return bool(await engine.members("held"))

    await engine.until("the event is held", held)
    await engine.client.hset(f"{shard.stem}kept:{entry}", "uid", "x")
    assert await shard.unhold(f"event:{entry}", replay=True, who="tests") == "replayed"
    await engine.until_done(event("x"))
    assert not await engine.members("held")
    assert not await engine.client.exists(f"{shard.stem}kept:{entry}")
    assert not await engine.client.exists(f"{shard.stem}why:{entry}")


async def test_a_held_event_that_is_dropped_leaves_nothing_behind(engine: EngineUnderTest) -> None:
    raw, _ = UNREADABLE["an unknown field"]
    shard = engine.installation.shards[0]
    entry = (await engine.client.xadd(shard.stem + "events", raw)).decode()
    await engine.start()

    async def held() -> bool:
        return bool(await engine.members("held"))

    await engine.until("the event is held", held)
    assert await shard.unhold(f"event:{entry}", replay=False, who="tests") == "dropped"
    assert not await engine.members("held")
    assert not await engine.entries()
    assert not await engine.client.exists(f"{shard.stem}kept:{entry}")
    assert await shard.unhold(f"event:{entry}", replay=False, who="tests") == "unknown"


async def _parked(engine: EngineUnderTest, one: Event) -> str:
    async def parked() -> list[str]:
        return list(await engine.members("newer"))

    await engine.publish(one)
    (member,) = await engine.until("the event is parked", parked)
    return member


async def test_an_event_of_a_newer_version_is_parked_until_a_process_knows_it(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    newer, good = event("later", v=2), event("good")
    await engine.start(provider)
    member = await _parked(engine, newer)
    await engine.publish(good)
    await engine.until_done(good)
    assert provider.planned == ["good"]
    assert not await engine.pending()
    await engine.tidy()
    assert (await engine.stats())["newer"] == 1
    shard = engine.shard(newer)
    assert await engine.client.exists(f"{shard.stem}kept:{member.removeprefix('event:')}")

    for running in engine.running:
        await running.crash()
    _, _, known = await shard.requeue(version=1)
    assert known == 0
    _, _, known = await shard.requeue(version=2)
    assert known == 1
    ((_, raw),) = await engine.client.xrange(shard.stem + "events")
    assert raw == {str(name).encode(): str(value).encode() for name, value in newer.fields().items()}
    assert not await engine.members("newer")
    assert not [key async for key in engine.client.scan_iter(match=f"{shard.stem}kept:*")]
    assert not [key async for key in engine.client.scan_iter(match=f"{shard.stem}why:*")]


async def test_a_parked_event_is_not_published_again_by_the_janitor(engine: EngineUnderTest) -> None:
    newer = event("later", v=2)
    running = await engine.start()
    member = await _parked(engine, newer)
    await running.crash()
    await engine.jump(timedelta(minutes=10))
    await engine.tidy()
    assert await engine.entries() == []
    assert list(await engine.members("newer")) == [member]

    shard = engine.shard(newer)
    await shard.requeue(version=2)
    await engine.jump(timedelta(minutes=10))
    await engine.tidy()
    assert len(await engine.entries()) == 1


async def test_a_job_of_a_newer_version_is_leased_only_by_a_worker_that_can_read_it(engine: EngineUnderTest) -> None:
    one = event("a")
    jobs = await engine.lay(one, [thing("old"), thing("new")])
    await engine.rewrite(jobs["new"], v=2)
    shard = engine.shard(one)

    taken = await engine.take(one, "hand", LANE)
    assert [lane.jobs for lane in taken.lanes] == [[jobs["old"]]]
    assert list(await engine.leases(LANE)) == [jobs["old"]]
    (intent,) = await engine.audit("intent")
    assert intent["jobs"] == jobs["old"]
    assert list(await engine.members("newer")) == [f"job:{jobs['new']}"]
    await engine.tidy()
    assert (await engine.stats())["newer"] == 1
    assert jobs["new"] not in await engine.queue(LANE)

    _, _, known = await shard.requeue(version=2)
    assert known == 1
    assert not await engine.members("newer")
    taken = await engine.take(one, "newcomer", LANE, version=2)
    assert [lane.jobs for lane in taken.lanes] == [[jobs["new"]]]


async def test_a_worker_passes_by_a_newer_job_and_gives_its_tokens_back(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    jobs = await engine.lay(one, [thing("old"), thing("new")])
    await engine.rewrite(jobs["new"], v=2)
    await engine.start(provider)

    async def gone() -> bool:
        return (await engine.job(jobs["old"])).get("state") == "gone"

    await engine.until("the job of our version is gone", gone)
    assert provider.called == ["old"]
    await engine.rewrite(jobs["new"], v=1)
    await engine.shard(one).requeue()
    await engine.until_done(one)


async def test_a_job_whose_record_can_not_be_read_is_set_aside_as_it_is(engine: EngineUnderTest) -> None:
    provider = ScriptedProvider()
    one = event("a")
    jobs = await engine.lay(one, [thing("good"), thing("bad")])
    broken = '{"v":1,"stage":0,"lane":"sim/acct/delete","kind":7,"target":["no"]}'
    await engine.rewrite(jobs["bad"], broken)
    await engine.start(provider)

    async def aside() -> bool:
        return list(await engine.members("dead")) == [jobs["bad"]] and not await engine.leases(LANE)

    await engine.until("the job is set aside and the other one settled", aside)
    assert list(await engine.members("held")) == [f"job:{jobs['bad']}"]
    assert not await engine.leases(LANE)
    plan, _, number = jobs["bad"].rpartition(".")
    assert (await engine.client.hget(engine.shard(one).stem + "job:" + plan, number)).decode() == broken
    assert await engine.decisions("set aside") == [jobs["bad"]]
