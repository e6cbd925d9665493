"""Kept resources on Azure: their tag, and the decision stored by subscription, group and name."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from service.contract import Event, Pending, Refused
from service.contract.kept import KeepDecision
from service.engine.inventory import InventoryRecord
from service.engine.kept_store import KeptStore
from service.sources.azure import KEEP_TAG, RETAINED
from service.sources.karpenter_azure import KARPENTER_AZURE, NODECLAIMS, AzureSettings, read_node_claim
from standins.azure import GROUP
from standins.azure.behaviour import AzureFault
from tests.integration.azure_removal import NAME, SOURCE, AzureRemovalFixture, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, sweeping
from tests.integration.command_line import knell
from workers.judging.kept_marking import WITHIN
from workers.providers.azure.claims import ConsentedObject
from workers.providers.azure.errors import NO_ROOM
from workers.providers.azure.kinds import NIC, VM
from workers.providers.azure.limits import call_draws
from workers.runtime.call_budget import CallBudget

__all__ = ["azure", "own_api", "removing", "sweeping"]

RETAIN = {"knell.dev/deletion-policy": "retain"}


async def retained(sweeping: AzureSweepFixture) -> tuple[str, Event]:
    """A claim whose interface stays is gone, and its deletion is over."""
    claim = await sweeping.nic()
    uid = await sweeping.remember(claim, gone=1, at=1, annotations=RETAIN)
    one = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE)
    await sweeping.publish(one)
    await sweeping.work()
    await sweeping.until_done(one)
    return claim, one


async def tags(sweeping: AzureSweepFixture, claim: str) -> Mapping[str, str]:
    found = await sweeping.cloud.calls().read(NIC, f"aks-{claim}")
    assert found is not None
    return found.tags


def key(sweeping: AzureSweepFixture) -> str:
    return f"azure/{sweeping.cloud.subscription}/{GROUP}".lower()


async def known(sweeping: AzureSweepFixture, claim: str) -> list[KeepDecision]:
    return await KeptStore(sweeping.installation).decisions(key(sweeping), claim)


@pytest.mark.invariant(10)
async def test_what_is_retained_is_tagged_and_stays_also_after_redis_is_lost(sweeping: AzureSweepFixture) -> None:
    claim, one = await retained(sweeping)
    found = await tags(sweeping, claim)
    assert found[RETAINED] == f"{sweeping.identity}/{NODECLAIMS}//{claim}/{one.uid}"
    assert KEEP_TAG not in found
    (decision,) = await known(sweeping, claim)
    assert [(resource.kind, resource.tag) for resource in decision.resources] == [(NIC.name, "")]
    assert (await sweeping.ripe()).found == 0
    await sweeping.inventory.remove([one.uid])
    await KeptStore(sweeping.installation).remove(f"{key(sweeping)}/{claim}", one.uid)
    await sweeping.ripe()
    (view,) = [view for view in await sweeping.until_state("done", 2) if view.uid == sweeping.uid(claim)]
    assert view.name == claim
    assert await sweeping.cloud.names() == {f"aks-{claim}"}


@pytest.mark.invariant(9)
async def test_a_later_claim_of_that_name_is_held_until_the_decision_is_forgotten(sweeping: AzureSweepFixture) -> None:
    claim, _ = await retained(sweeping)
    later = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid="later", name=claim, source=SOURCE)
    await sweeping.inventory.save({"later": InventoryRecord(v=1, name=claim, gone=1, at=1)})
    await sweeping.publish(later)
    await sweeping.until_state("held")
    assert f"knell kept forget {key(sweeping)}/{claim}" in (await sweeping.deletion(later))["held"]
    answer = await knell(sweeping, "kept", "forget", f"{key(sweeping)}/{claim}", "--yes", "--record-only")
    assert answer.code == 0, answer.err
    assert f"--tags {RETAINED}" in answer.out
    assert await known(sweeping, claim) == []
    await sweeping.until_done(later)
    # The tag keeps it all the same.
    assert await sweeping.cloud.names() == {f"aks-{claim}"}


async def test_a_tag_that_is_refused_is_recorded_and_fails_nothing(sweeping: AzureSweepFixture) -> None:
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny", operation="nic.tag"))
    claim, _ = await retained(sweeping)
    (decision,) = await known(sweeping, claim)
    assert [resource.tag for resource in decision.resources] == ["not tagged: AuthorizationFailed"]
    assert RETAINED not in await tags(sweeping, claim)


async def test_for_want_of_room_a_release_comes_back_when_there_is_some(sweeping: AzureSweepFixture) -> None:
    """Nothing is waited for in the attempt."""
    claim, quota = await sweeping.nic(), CallBudget(sweeping.installation.budgets, 0.1)
    where, reserve = sweeping.cloud.where, sweeping.settings.section(AzureSettings).reserve
    (writes,) = call_draws(where, "tags.write", reserve)
    await quota.refused(where.budget, writes.limit, timedelta(seconds=100))
    uid = await sweeping.remember(claim, gone=1, at=1, annotations=RETAIN)
    one = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE)
    await sweeping.publish(one)
    await sweeping.work()

    async def waits() -> bool:
        if "plan" not in await sweeping.deletion(one):
            return False
        (release,) = await sweeping.jobs_of(one)
        return NO_ROOM in (await sweeping.job(release)).get("detail", "")

    await sweeping.until("the release waits for room", waits)
    assert RETAINED not in await tags(sweeping, claim)
    await sweeping.client.delete(sweeping.installation.keys.budget(where.budget))
    await sweeping.jump(WITHIN)
    await sweeping.until_done(one)
    assert RETAINED in await tags(sweeping, claim)


@pytest.mark.invariant(9)
async def test_a_machine_that_is_more_than_an_hour_older_than_its_claim_is_held(removing: AzureRemovalFixture) -> None:
    await removing.vm()
    now = int(time.time() * 1000)
    later = removing.claim_of(made=now + 2 * 3600_000)
    for looks in (True, False):
        verdict = await removing.one(removing.batch(VM, claim=later, looks=looks))
        assert isinstance(verdict, Refused)
        assert "long before its NodeClaim" in verdict.reason
    soon = removing.claim_of(made=now + 1800_000)
    batch = removing.batch(VM, claim=soon)
    removing.consents.record("deletion", ConsentedObject(KARPENTER_AZURE, SOURCE, soon.claim, soon.made))
    assert isinstance(await removing.one(batch), Pending)


def test_a_claim_tells_when_it_was_made() -> None:
    raw = b'{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"}}'
    assert read_node_claim(raw).made == int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1000)


async def test_tags_are_added_to_those_that_are_there(removing: AzureRemovalFixture) -> None:
    await removing.nic()
    before = await removing.calls().read(NIC, NAME)
    assert before is not None
    await removing.calls().tag(NIC, NAME, {RETAINED: "so"})
    found = await removing.calls().read(NIC, NAME)
    assert found is not None
    assert found.tags == {**before.tags, RETAINED: "so"}
