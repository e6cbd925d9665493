"""A source whose nodes are in several subscriptions: a claim that was launched says in which, another may be in any."""

import uuid

import pytest

from service.contract.azure import resource_name
from standins.azure import GROUP, Entry, Group, Nic
from tests.scenarios.azure.stage import SOURCE, TAGS, VM, Stage

pytestmark = pytest.mark.long


async def test_a_claim_that_was_launched_is_looked_for_where_its_machine_was(stage: Stage) -> None:
    second = await _second(stage)
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.azure.make(Nic(name=resource_name(claim), tags=TAGS, subscription=second))
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()
    assert await _asked(stage, second) == []
    assert {one.subscription for one in await stage.azure.there()} == {second}
    await stage.azure.remove("nic", resource_name(claim), subscription=second)


async def test_a_claim_that_was_never_launched_is_looked_for_in_all_of_them_side_by_side(stage: Stage) -> None:
    second = await _second(stage)
    await stage.trouble("deny", "vm.get")
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim, launched=False)
    await stage.nic(claim)
    await stage.azure.make(Nic(name=resource_name(claim), tags=TAGS, subscription=second))
    await stage.unclaimed(claim)
    # One of them is denied, which does not hold the other up.
    await stage.until_told(claim, "AuthorizationFailed", kind=VM)

    async def other_gone() -> bool:
        return not [one for one in await stage.azure.there() if one.subscription == second]

    await stage.until("what is in the second one is gone", other_gone)
    assert await stage.names() == {resource_name(claim)}
    await stage.azure.trouble()
    record = await stage.until_done(uid)
    assert record.jobs == 2 * 4 + 1
    assert await stage.names() == set()


async def test_a_sweep_goes_through_all_of_them_and_a_denied_one_makes_no_pass_of_it(stage: Stage) -> None:
    second = await _second(stage)
    stage.sweeping(listing="provider")
    await stage.trouble("deny", "nic.list", subscription=second)
    await stage.nic(stage.name("a"))
    await stage.azure.make(Nic(name=resource_name(stage.name("b")), tags=TAGS, subscription=second))
    await stage.start()
    await stage.until_no_pass("AuthorizationFailed", "networkInterfaces/read", second)
    assert await stage.orphans.size() == 0
    await stage.azure.trouble()

    async def empty() -> bool:
        return not await stage.azure.there()

    await stage.until("the orphans of both are gone", empty)
    assert {one.name for one in await stage.deletions()} == {stage.name("a"), stage.name("b")}


async def _second(stage: Stage) -> str:
    other = str(uuid.uuid4())
    await stage.azure.declare(Group(subscription=other))
    stage.document["azure"]["nodes"] = {SOURCE: [stage.nodes(), stage.nodes(subscription=other)]}
    for one in await stage.azure.there():
        # Of other tests.
        await stage.azure.remove(one.kind, one.name, subscription=one.subscription, group=one.group)
    return other


async def _asked(stage: Stage, subscription: str) -> list[Entry]:
    return [one for one in await stage.azure.requests() if one.subscription == subscription and one.group == GROUP]
