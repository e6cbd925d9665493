"""Resharding keeps operators' decisions, and numbers that never go back."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from service.engine.installation import Installation
from service.engine.kept_store import KeptStore
from service.engine.reshard.reshard import Reshard
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.scripted_provider import event, thing
from tests.integration.command_line import operated
from tests.redis_servers import TestServer

OBJECTS = [event(f"u{number}") for number in range(8)]


@pytest.fixture
async def engine(server: TestServer) -> AsyncIterator[EngineUnderTest]:
    async with operated(server, shards=1) as made:
        yield made


def in_shards(engine: EngineUnderTest, count: int) -> Installation:
    redis = msgspec.structs.replace(engine.settings.redis, shards=count)
    return engine.install(msgspec.structs.replace(engine.settings, redis=redis))


async def abandoned(engine: EngineUnderTest, shards: int) -> dict[str, list[str]]:
    memory = KeptStore(in_shards(engine, shards))
    return {one.uid: [job.target for job in (await memory.abandoned(one.deletion)).jobs] for one in OBJECTS}


async def test_what_was_abandoned_is_known_after_a_move(engine: EngineUnderTest) -> None:
    for one in OBJECTS:
        jobs = await engine.lay(one, [thing(f"{one.uid}-stuck"), thing(f"{one.uid}-other")])
        assert await engine.shard(one).abandon(jobs[f"{one.uid}-stuck"], "ann") == "abandoned"
    wanted = {one.uid: [f"{one.uid}-stuck"] for one in OBJECTS}
    assert await abandoned(engine, 1) == wanted
    await Reshard(in_shards(engine, 1), 4).run("ann")
    assert await abandoned(engine, 4) == wanted
    await Reshard(in_shards(engine, 4), 3).run("ann")
    assert await abandoned(engine, 3) == wanted


async def test_numbers_of_plans_and_fencing_tokens_are_never_lower_after_a_move(engine: EngineUnderTest) -> None:
    names = ("fence", "highest_plan", "retired_plan")
    before = in_shards(engine, 4)
    await engine.client.hset(before.shards[0].stem + "meta", "shards", 4)
    for place, name in enumerate(names, 1):
        await engine.client.hset(before.shards[place].stem + "meta", name, 40 + place)
    await engine.client.hset(before.shards[0].stem + "meta", "highest_plan", 99)
    await Reshard(before, 3).run("ann")
    for shard in in_shards(engine, 3).shards:
        found = await engine.client.hmget(shard.stem + "meta", *names)
        assert [int(number) for number in found] == [41, 99, 43]
