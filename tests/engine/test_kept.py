"""What was decided to be kept under a name: one word for each object, the last one, until it is forgotten."""

import pytest

from service.contract import VERSION, Undecodable
from service.contract.kept import Decision
from service.stream.kept import KeptMemory
from tests.engine.world import World

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
