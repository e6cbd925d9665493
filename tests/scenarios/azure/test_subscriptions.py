"""Source with nodes in several subscriptions: a launched NodeClaim names its own, any other may be in each of them."""

import uuid

import pytest

from service.sources.karpenter_azure import resource_name
from standins.azure import GROUP, AzureJournalEntry, Nic, ResourceGroup
from tests.scenarios.azure.azure_scenario import SOURCE, TAGS, VM, AzureScenario

pytestmark = pytest.mark.long


async def test_a_claim_that_was_launched_is_looked_for_where_its_machine_was(scenario: AzureScenario) -> None:
    second = await _second(scenario)
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.azure.make(Nic(name=resource_name(claim), tags=TAGS, subscription=second))
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()
    assert await _asked(scenario, second) == []
    assert {one.subscription for one in await scenario.azure.there()} == {second}
    await scenario.azure.remove("nic", resource_name(claim), subscription=second)


async def test_a_claim_that_was_never_launched_is_looked_for_in_all_of_them_side_by_side(
    scenario: AzureScenario,
) -> None:
    second = await _second(scenario)
    await scenario.trouble("deny", "vm.get")
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim, launched=False)
    await scenario.nic(claim)
    await scenario.azure.make(Nic(name=resource_name(claim), tags=TAGS, subscription=second))
    await scenario.unclaimed(claim)
    # One of them is denied, which does not hold the other up.
    await scenario.until_told(claim, "AuthorizationFailed", kind=VM)

    async def other_gone() -> bool:
        return not [one for one in await scenario.azure.there() if one.subscription == second]

    await scenario.until("what is in the second one is gone", other_gone)
    assert await scenario.names() == {resource_name(claim)}
    await scenario.azure.set_faults()
    record = await scenario.until_done(uid)
    assert record.jobs == 2 * 4 + 1
    assert await scenario.names() == set()


async def test_a_sweep_goes_through_all_of_them_and_a_denied_one_makes_no_pass_of_it(scenario: AzureScenario) -> None:
    second = await _second(scenario)
    scenario.sweeping(listing="provider")
    await scenario.trouble("deny", "nic.list", subscription=second)
    await scenario.nic(scenario.name("a"))
    await scenario.azure.make(Nic(name=resource_name(scenario.name("b")), tags=TAGS, subscription=second))
    await scenario.start()
    await scenario.until_no_pass("AuthorizationFailed", "networkInterfaces/read", second)
    assert await scenario.orphans.size() == 0
    await scenario.azure.set_faults()

    async def empty() -> bool:
        return not await scenario.azure.there()

    await scenario.until("the orphans of both are gone", empty)
    assert {one.name for one in await scenario.deletions()} == {scenario.name("a"), scenario.name("b")}


async def _second(scenario: AzureScenario) -> str:
    other = str(uuid.uuid4())
    await scenario.azure.declare(ResourceGroup(subscription=other))
    scenario.document["azure"]["nodes"] = {SOURCE: [scenario.nodes(), scenario.nodes(subscription=other)]}
    for one in await scenario.azure.there():
        # Of other tests.
        await scenario.azure.remove(one.kind, one.name, subscription=one.subscription, group=one.group)
    return other


async def _asked(scenario: AzureScenario, subscription: str) -> list[AzureJournalEntry]:
    return [one for one in await scenario.azure.requests() if one.subscription == subscription and one.group == GROUP]
