"""What Redis keeps of the counters on Leases, and of clusters that were restored from a backup."""

import pytest

from service.engine.witnesses import Noted, Witnesses
from tests.engine.world import World

CLUSTER, LEASE = "a-cluster", "knell/knell-widgets-0"


@pytest.mark.every_server
async def test_a_value_never_goes_down_and_keeps_its_lease(world: World) -> None:
    witnesses = Witnesses(world.installation)

    async def noted() -> Noted | None:
        return (await witnesses.look(CLUSTER, [LEASE, "knell/another"])).noted.get(LEASE)

    assert await noted() is None
    for uid, value, kept in (("one", 7, 7), ("one", 5, 7), ("another", 9, 7), ("one", 8, 8), ("one", 10**15 - 1, None)):
        await witnesses.note(CLUSTER, LEASE, uid, value)
        found = await noted()
        assert found is not None
        assert (found.uid, found.value) == ("one", kept or value)
    assert (await witnesses.look("another-cluster", [LEASE])).noted == {}


@pytest.mark.every_server
@pytest.mark.invariant(5)
async def test_a_look_from_before_a_person_accepted_brings_nothing_up_again(world: World) -> None:
    witnesses = Witnesses(world.installation)
    before = await witnesses.look(CLUSTER)
    assert await witnesses.suspect(CLUSTER, before.raw, "first")
    assert not await witnesses.suspect(CLUSTER, before.raw, "the same look of another process")
    now = await witnesses.look(CLUSTER)
    assert now.restored == "first"
    assert not await witnesses.suspect(CLUSTER, now.raw, "more of it")
    assert (await witnesses.look(CLUSTER)).restored == "first"
    assert await witnesses.accept(CLUSTER, now.raw, "a person")
    assert not await witnesses.accept(CLUSTER, now.raw, "another person")
    assert not await witnesses.suspect(CLUSTER, before.raw, "an old look")
    assert await witnesses.restored() == {}
    again = await witnesses.look(CLUSTER)
    assert await witnesses.suspect(CLUSTER, again.raw, "a second restore")
    assert [one.why for one in (await witnesses.restored()).values()] == ["a second restore"]
