"""Moving to another number of shards takes along what people decided, and numbers that never go back."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from service.engine.installation import Installation
from service.engine.kept import KeptMemory
from service.engine.reshard import Reshard
from tests.engine.outside import event, thing
from tests.engine.world import World
from tests.integration.operating import operated
from tests.servers import TestServer

OBJECTS = [event(f"u{number}") for number in range(8)]


@pytest.fixture
async def world(server: TestServer) -> AsyncIterator[World]:
    async with operated(server, shards=1) as made:
        yield made


def in_shards(world: World, count: int) -> Installation:
    redis = msgspec.structs.replace(world.settings.redis, shards=count)
    return world.install(msgspec.structs.replace(world.settings, redis=redis))


async def abandoned(world: World, shards: int) -> dict[str, list[str]]:
    memory = KeptMemory(in_shards(world, shards))
    return {one.uid: [job.target for job in (await memory.abandoned(one.deletion)).jobs] for one in OBJECTS}


async def test_what_was_abandoned_is_known_after_a_move(world: World) -> None:
    for one in OBJECTS:
        jobs = await world.lay(one, [thing(f"{one.uid}-stuck"), thing(f"{one.uid}-other")])
        assert await world.shard(one).abandon(jobs[f"{one.uid}-stuck"], "ann") == "abandoned"
    wanted = {one.uid: [f"{one.uid}-stuck"] for one in OBJECTS}
    assert await abandoned(world, 1) == wanted
    await Reshard(in_shards(world, 1), 4).run("ann")
    assert await abandoned(world, 4) == wanted
    await Reshard(in_shards(world, 4), 3).run("ann")
    assert await abandoned(world, 3) == wanted


async def test_numbers_of_plans_and_fencing_tokens_are_never_lower_after_a_move(world: World) -> None:
    names = ("fence", "highest_plan", "retired_plan")
    before = in_shards(world, 4)
    await world.client.hset(before.shards[0].stem + "meta", "shards", 4)
    for place, name in enumerate(names, 1):
        await world.client.hset(before.shards[place].stem + "meta", name, 40 + place)
    await world.client.hset(before.shards[0].stem + "meta", "highest_plan", 99)
    await Reshard(before, 3).run("ann")
    for shard in in_shards(world, 3).shards:
        found = await world.client.hmget(shard.stem + "meta", *names)
        assert [int(number) for number in found] == [41, 99, 43]
