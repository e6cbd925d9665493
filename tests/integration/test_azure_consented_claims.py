"""Consented claims: a job deletes only resources named after the NodeClaim that was checked, whatever its record
says."""

import msgspec
import pytest

from service.contract import Refused
from service.sources.karpenter_azure import KARPENTER_AZURE
from tests.integration.azure_removal import NAME, SOURCE, TAGS, azure, own_api, removing
from tests.integration.azure_removal import AzureRemovalFixture as Hands
from tests.integration.azure_sweep import AzureSweepFixture, sweeping
from tests.integration.command_line import knell
from workers.collectors.karpenter_azure.claim import KarpenterClaim
from workers.handlers.protocol import NotCleared
from workers.providers.azure.claims import AzureClaim, ConsentedObject
from workers.providers.azure.kinds import NIC, VM, AzureKind
from workers.removal import RemovalProgress

__all__ = ["azure", "own_api", "removing", "sweeping"]

STAYS = {**TAGS, "knell.dev_prevent-delete": "true"}
DELETES = {"nic.delete", "vm.delete"}


@pytest.mark.invariant(8)
@pytest.mark.parametrize(
    "given",
    [
        ConsentedObject(KARPENTER_AZURE, SOURCE, "b"),
        ConsentedObject(KARPENTER_AZURE, "others", "a"),
        ConsentedObject("another", SOURCE, "a"),
        # The claim has no creation time: by it, no resource would be too old.
        ConsentedObject(KARPENTER_AZURE, SOURCE, "a", 1_700_000_000_000),
    ],
    ids=["another claim", "another source", "another collector", "another creation time"],
)
async def test_what_is_not_of_the_claim_that_consented_is_not_touched(removing: Hands, given: ConsentedObject) -> None:
    await removing.nic()
    batch = removing.batch(NIC)
    removing.consents.record("deletion", given)
    found = await removing.one(batch)
    assert isinstance(found, NotCleared)
    assert (found.refused, found.deletion) == (True, "deletion")
    assert DELETES.isdisjoint(await removing.asked())
    assert await removing.names() == {NAME}


@pytest.mark.invariant(8)
async def test_a_machine_that_came_late_goes_only_with_the_claim_that_consented(removing: Hands) -> None:
    machine = await removing.vm(nics=(NAME,))
    await removing.nic(vm=NAME)
    claim = removing.claim_of()
    made = removing.batch(NIC, resume=str(RemovalProgress("", state=machine)))
    batch = type(made)(claim.where.lane(VM.removing), made.jobs)
    removing.consents.record("deletion", ConsentedObject(KARPENTER_AZURE, SOURCE, "b"))
    found = await removing.one(batch, balances=False)
    assert isinstance(found, NotCleared)
    assert DELETES.isdisjoint(await removing.asked())


@pytest.mark.invariant(8)
@pytest.mark.parametrize("kind", [VM, NIC], ids=lambda kind: kind.name)
@pytest.mark.parametrize("looks", [False, True])
async def test_a_target_that_is_not_named_after_its_own_claim_is_not_even_read(
    removing: Hands, kind: AzureKind, looks: bool
) -> None:
    await removing.nic("aks-b")
    found = await removing.one(removing.batch(kind, "aks-b", claim=removing.claim_of(claim="a"), looks=looks))
    assert isinstance(found, Refused)
    assert "not named after NodeClaim a" in found.reason
    assert await removing.asked() == []


@pytest.mark.invariant(8)
@pytest.mark.parametrize("kind", [VM, NIC], ids=lambda kind: kind.name)
@pytest.mark.parametrize("looks", [False, True])
async def test_a_claim_of_a_collector_that_this_process_does_not_have_is_refused_unread(
    removing: Hands, kind: AzureKind, looks: bool
) -> None:
    await removing.nic()
    for claim in (
        removing.claim_of(collector="another"),
        AzureClaim(collector="", source=SOURCE, where=removing.where),
    ):
        found = await removing.one(removing.batch(kind, claim=claim, looks=looks))
        assert isinstance(found, Refused)
        assert f"claimed by collector {claim.collector!r}, which this process does not have" in found.reason
        assert await removing.asked() == []


@pytest.mark.invariant(8)
@pytest.mark.parametrize("looks", [False, True])
async def test_a_claim_does_not_choose_a_judge_that_is_not_its_sources(removing: Hands, looks: bool) -> None:
    await removing.nic()
    declared = msgspec.structs.replace(removing.settings.sources[SOURCE], collector="another")
    removing.settings = msgspec.structs.replace(removing.settings, sources={SOURCE: declared})
    found = await removing.one(removing.batch(NIC, looks=looks))
    assert isinstance(found, Refused)
    assert f"source {SOURCE} has collector 'another'" in found.reason
    assert await removing.asked() == []


@pytest.mark.invariant(8)
async def test_a_job_of_an_orphaned_interface_deletes_no_machine_in_whatever_lane_it_is(removing: Hands) -> None:
    machine = await removing.vm(nics=(NAME,))
    guid = await removing.nic(vm=NAME)
    claim = removing.claim_of(judged=guid)
    made = removing.batch(NIC, claim=claim, resume=str(RemovalProgress(guid, state=machine)))
    found = await removing.one(type(made)(claim.where.lane(VM.removing), made.jobs))
    assert isinstance(found, ValueError)
    assert await removing.asked() == []


async def test_without_recorded_consent_nothing_is_deleted(removing: Hands) -> None:
    await removing.nic()
    batch = removing.batch(NIC)
    removing.consents = type(removing.consents)()
    assert isinstance(await removing.one(batch), NotCleared)
    assert await removing.names() == {NAME}


async def test_names_are_compared_as_azure_compares_them(removing: Hands) -> None:
    await removing.nic("AKS-a")
    await removing.one(removing.batch(NIC, "AKS-a"))
    assert "nic.delete" in await removing.asked()


@pytest.mark.invariant(8)
async def test_a_job_that_was_changed_in_redis_to_name_a_living_claims_interface_removes_nothing(
    sweeping: AzureSweepFixture,
) -> None:
    await sweeping.cloud.azure.set_rate(100)
    await sweeping.watch()
    await sweeping.work()
    lives = await sweeping.nic("lives")
    sweeping.cloud.claim(lives)
    claim = await sweeping.nic("goes", tags=STAYS)
    uid = sweeping.cloud.claim(claim)

    async def known() -> bool:
        return await sweeping.inventory.get(uid) is not None

    await sweeping.until("it is remembered", known)
    sweeping.cloud.unclaim(claim)

    async def told() -> bool:
        return f"{uid}/1" in await sweeping.published()

    await sweeping.until("its deletion is published", told)
    view = (await sweeping.published())[f"{uid}/1"]
    job = await sweeping.until_refused(view, NIC)
    planned = msgspec.json.decode((await sweeping.job(job))["data"], type=KarpenterClaim)
    forged = msgspec.json.encode(msgspec.structs.replace(planned, claim=lives)).decode()
    await sweeping.rewrite(job, target=f"aks-{lives}", data=forged, resume="")
    answer = await knell(sweeping, "jobs", "retry", job)
    assert answer.code == 0, answer.err

    async def refused() -> bool:
        return f"not named after NodeClaim {claim}" in (await sweeping.job(job)).get("detail", "")

    await sweeping.until("it is refused", refused)
    assert await sweeping.cloud.names("nic") == {f"aks-{lives}", f"aks-{claim}"}
