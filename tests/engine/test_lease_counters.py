"""Stored counters of Leases, and clusters that were restored from a backup."""

import pytest

from service.engine.lease_counters import LeaseCounterStore, StoredCounter
from tests.engine.engine_under_test import EngineUnderTest

CLUSTER, LEASE = "a-cluster", "knell/knell-widgets-0"


@pytest.mark.every_server
async def test_a_value_never_goes_down_and_keeps_its_lease(engine: EngineUnderTest) -> None:
    witnesses = LeaseCounterStore(engine.installation)

    async def noted() -> StoredCounter | None:
        return (await witnesses.read(CLUSTER, [LEASE, "knell/another"])).counters.get(LEASE)

    assert await noted() is None
    for uid, value, kept in (("one", 7, 7), ("one", 5, 7), ("another", 9, 7), ("one", 8, 8), ("one", 10**15 - 1, None)):
        await witnesses.save(CLUSTER, LEASE, uid, value)
        found = await noted()
        assert found is not None
        assert (found.uid, found.value) == ("one", kept or value)
    assert (await witnesses.read("another-cluster", [LEASE])).counters == {}


@pytest.mark.every_server
@pytest.mark.invariant(5)
async def test_a_look_from_before_a_person_accepted_brings_nothing_up_again(engine: EngineUnderTest) -> None:
    witnesses = LeaseCounterStore(engine.installation)
    before = await witnesses.read(CLUSTER)
    assert await witnesses.mark_restored(CLUSTER, before.record, "first")
    assert not await witnesses.mark_restored(CLUSTER, before.record, "the same look of another process")
    now = await witnesses.read(CLUSTER)
    assert now.reason == "first"
    assert not await witnesses.mark_restored(CLUSTER, now.record, "more of it")
    assert (await witnesses.read(CLUSTER)).reason == "first"
    assert await witnesses.accept(CLUSTER, now.record, "a person")
    assert not await witnesses.accept(CLUSTER, now.record, "another person")
    assert not await witnesses.mark_restored(CLUSTER, before.record, "an old look")
    assert await witnesses.restored_clusters() == {}
    again = await witnesses.read(CLUSTER)
    assert await witnesses.mark_restored(CLUSTER, again.record, "a second restore")
    assert [one.why for one in (await witnesses.restored_clusters()).values()] == ["a second restore"]
