"""Another hand takes our finalizer off while jobs are open: that withdraws consent, and nothing more is removed."""

import pytest

from standins.provider import Resource, Seed
from tests.scenarios.watch.evidence import assert_story
from tests.scenarios.watch.objects import ACCOUNT
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long

BLOCKER = "in-the-way"


async def test_a_finalizer_taken_off_by_another_hand_cancels_what_is_open(world: World) -> None:
    """The first resource is gone, the second is in use, the third has not had its turn."""
    world.provider.world.add(Seed(resources=(Resource(account=ACCOUNT, id=BLOCKER, owner="somebody"),)))
    blocked = Resource(account=ACCOUNT, id="vm-1", owner="tag-vm", blocked_by=(BLOCKER,))
    service = await world.start()
    await world.make("vm", targets=3, stages=True, resources=[blocked])
    await world.make("unclear", annotations={"knell.dev/deletion-policy": "perhaps"})
    await world.many("stays", 2)
    await world.ready(*world.made)
    await world.delete("vm", "unclear")

    async def in_use() -> bool:
        return any(line.id == "vm-1" and line.status == 409 for line in world.calls())

    await world.until("the second resource is in use", in_use)
    await world.until("the other is held", lambda: _state(world, "unclear", "held"))
    for name in ("vm", "unclear"):
        await world.admin.patch(world.made[name].path, {"metadata": {"finalizers": None}})
    assert await world.read("vm") is None
    await world.until("what was open is closed", lambda: _state(world, "vm", "done"))
    await world.until("what was held is dropped", lambda: _state(world, "unclear", "dropped"))
    # The way is free now, and nobody goes it.
    del world.provider.world.standing[ACCOUNT, BLOCKER]
    view = (await world.deletions())[world.deletion_of("vm")]
    assert view.left == 0
    assert "finalizer" in view.withdrawn
    decisions = [entry["id"] for entry in await world.decisions("withdrawn")]
    assert sorted(decisions) == sorted(world.deletion_of(name) for name in ("vm", "unclear"))
    await service.stop()
    await assert_story(
        world, [], left=["vm", "unclear"], gone=["vm-0"], tried=["vm-1"],
        others={world.deletion_of("vm"): "done", world.deletion_of("unclear"): "dropped"},
    )  # fmt: skip
    assert world.there("vm-1")
    assert world.there("vm-2")


async def _state(world: World, name: str, state: str) -> bool:
    found = (await world.deletions()).get(world.deletion_of(name))
    return found is not None and found.state == state
