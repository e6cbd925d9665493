"""Kept NodeClaims: their records stay until reads in every group that was ever configured show that nothing is left."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from service.kubernetes import KubernetesClient, ListPage
from standins.azure import AzureFault, ResourceGroup
from tests.integration.azure_removal import azure, own_api, removing
from tests.integration.azure_sweep import AGE, AzureSweepFixture, sweeping
from workers.sweeps.kept_owners import AT_ONCE

__all__ = ["azure", "own_api", "removing", "sweeping"]

KEPT = {"kept": "retain: so", "gone": 7}
WAYS = pytest.mark.parametrize("way", ["graph", "provider"])


async def assert_nothing_published(sweeping: AzureSweepFixture) -> None:
    swept = await sweeping.ripe()
    assert (swept.found, await sweeping.published()) == (0, {})


@WAYS
async def test_what_stays_is_remembered_through_a_pass_that_asks_for_another_cluster(
    sweeping: AzureSweepFixture, way: str
) -> None:
    sweeping.sweeps(listing=way)
    uid = await sweeping.remember(await sweeping.nic(), **KEPT)
    sweeping.places(sweeping.nodes(cluster="staging"))
    assert (await sweeping.sweep()).listed == 0
    assert await sweeping.inventory.get(uid) is not None
    sweeping.places(sweeping.nodes())
    await assert_nothing_published(sweeping)


@WAYS
async def test_what_stays_is_remembered_while_its_group_is_not_named(sweeping: AzureSweepFixture, way: str) -> None:
    sweeping.sweeps(listing=way)
    await sweeping.cloud.azure.declare(ResourceGroup(subscription=sweeping.cloud.subscription, name="mc_two"))
    here, two = sweeping.nodes(), sweeping.nodes(resource_group="MC_two")
    sweeping.places(here, two)
    uid = await sweeping.remember(await sweeping.nic(group="mc_two"), **KEPT)
    await sweeping.sweep()
    sweeping.places(here)
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is not None
    sweeping.places(two, here)
    await assert_nothing_published(sweeping)
    # Put back, it can be asked again; Resource Graph counts queries in windows.
    await sweeping.cloud.azure.advance(10)
    (name,) = await sweeping.cloud.names("nic")
    await sweeping.cloud.azure.remove("nic", name, subscription=sweeping.cloud.subscription, group="mc_two")
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is None


async def test_what_stays_is_remembered_if_it_is_made_after_its_page_was_read(sweeping: AzureSweepFixture) -> None:
    claim = sweeping.cloud.name("a")
    uid = await sweeping.remember(claim, **KEPT)

    class NicCreatingPages(KubernetesClient):
        async def pages(self, *words: Any, **how: Any) -> AsyncGenerator[ListPage, None]:
            await sweeping.nic()
            async for page in super().pages(*words, **how):
                yield page

    assert (await sweeping.sweep(cluster=NicCreatingPages("here", sweeping.cluster._calls))).listed == 0
    assert await sweeping.inventory.get(uid) is not None
    await assert_nothing_published(sweeping)


async def test_what_went_after_the_pass_began_may_still_leave_something(sweeping: AzureSweepFixture) -> None:
    now = await sweeping.orphans.now()
    uid = await sweeping.remember(sweeping.cloud.name("a"), kept="retain: so", gone=now + AGE.seconds * 1000)
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is not None
    await sweeping.jump(2 * AGE)
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is None


@pytest.mark.parametrize("operation", ["vm.get", "nic.get"])
async def test_a_read_that_fails_forgets_nothing(sweeping: AzureSweepFixture, operation: str) -> None:
    uid = await sweeping.remember(sweeping.cloud.name("a"), **KEPT)
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny", operation=operation))
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is not None


async def test_a_machine_that_a_kept_claim_has_elsewhere_in_the_group_is_something_of_it(
    sweeping: AzureSweepFixture,
) -> None:
    """Tagged for another cluster, or not at all: no list of ours has it."""
    claim = sweeping.cloud.name("a")
    await sweeping.cloud.vm(f"aks-{claim}", tags={})
    uid = await sweeping.remember(claim, **KEPT)
    await sweeping.sweep()
    assert await sweeping.inventory.get(uid) is not None


async def test_few_are_looked_for_in_one_pass_and_the_rest_in_later_ones(sweeping: AzureSweepFixture) -> None:
    for number in range(AT_ONCE + 3):
        await sweeping.remember(sweeping.cloud.name(str(number)), **KEPT)
    await sweeping.sweep()
    assert await sweeping.inventory.size() == 3
    await sweeping.sweep()
    assert await sweeping.inventory.size() == 0
