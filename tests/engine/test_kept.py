"""What was decided to be kept: under a name one word for each object, of a deletion the jobs that were abandoned."""

from datetime import timedelta

import pytest

from service.contract import VERSION, Undecodable
from service.contract.kept import NOTHING_ABANDONED, Decision
from service.engine.endings import endings
from service.engine.kept import KeptMemory
from tests.engine.outside import Outside, event, thing
from tests.engine.world import World

GRACE = timedelta(minutes=1)
PLACE = "aws/111122223333/eu-west-1"


def decision(uid: str, why: str = "retain: so", name: str = "prod") -> Decision:
    return Decision(
        v=VERSION, place=PLACE, name=name, object=f"awsclusters tenant/{name}", uid=uid, source="clusters", why=why,
        at=1, remark="two\nlines",
    )  # fmt: skip


@pytest.mark.every_server
async def test_each_object_has_one_word_under_a_name(world: World) -> None:
    memory = KeptMemory(world.install())
    for one in (decision("a"), decision("b"), decision("a", "left: since"), decision("a", name="prod-2")):
        await memory.remember(one)
    assert await memory.decisions(PLACE, "prod") == [decision("b"), decision("a", "left: since")]
    assert await memory.decisions(PLACE, "pro") == []
    assert {name async for name, _ in memory.every()} == {f"{PLACE}/prod", f"{PLACE}/prod-2"}
    assert await memory.forget(f"{PLACE}/prod", "b")
    assert not await memory.forget(f"{PLACE}/prod", "b")
    assert await memory.forget(f"{PLACE}/prod", "a")
    assert [name async for name, _ in memory.every()] == [f"{PLACE}/prod-2"]


async def test_what_can_not_be_read_is_not_taken_for_nothing(world: World) -> None:
    memory = KeptMemory(world.install())
    await world.client.hset(memory.key, f"{PLACE}/prod", "a {}")
    with pytest.raises(Undecodable):
        await memory.decisions(PLACE, "prod")
    assert [found async for found in memory.every()] == [(f"{PLACE}/prod", None)]


@pytest.mark.every_server
async def test_an_abandoned_job_stays_abandoned_when_its_deletion_is_planned_anew(world: World) -> None:
    outside = Outside()
    one = outside.has("a", [thing("left"), thing("gone")])
    jobs = await world.lay(one, [thing("left"), thing("gone")])
    memory = KeptMemory(world.installation)
    assert await memory.abandoned(one.deletion) == NOTHING_ABANDONED
    assert await world.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await world.client.delete(f"{world.shard(one).stem}job:{one.deletion}#1")
    await world.jump(GRACE)
    await world.tidy()
    assert (await world.deletion(one))["abandoned"] == "1"
    abandoned = await memory.abandoned(one.deletion)
    assert abandoned.covers("thing", "left")
    assert not abandoned.covers("thing", "gone")
    (ending,) = await endings(world.installation, [one.deletion])
    assert ending.kept.startswith("left: ")


async def test_an_abandoned_job_that_can_not_be_read_may_have_been_any(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("left")])
    await world.client.hset(f"{world.shard(one).stem}job:{one.deletion}#1", "0", "no record")
    assert await world.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    abandoned = await KeptMemory(world.installation).abandoned(one.deletion)
    assert (abandoned.jobs, abandoned.unknown) == ((), 1)


async def test_what_was_abandoned_goes_with_the_record_of_its_deletion(world: World) -> None:
    one = event("a")
    jobs = await world.lay(one, [thing("left")])
    assert await world.shard(one).abandon(jobs["left"], "ann") == "abandoned"
    await world.start(Outside())
    await world.until_done(one)
    assert await KeptMemory(world.installation).abandoned(one.deletion) != NOTHING_ABANDONED
    now = timedelta()
    await world.shard(one).expire(finished=now, audit=now, audit_entries=100, lanes=now, most=100)
    assert await KeptMemory(world.installation).abandoned(one.deletion) == NOTHING_ABANDONED
