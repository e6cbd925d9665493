"""Orphans that an operator decided to keep (dropped or abandoned) stay, however many passes of a sweep see them.
With watcher, workers, command line and sweep together."""

from typing import Any

import pytest

from service.contract import Event
from service.contract.names import DRY_RUN
from service.engine.inventory import InventoryRecord
from service.engine.views.deletions import DeletionView
from service.sources.azure import RETAINED
from service.sources.karpenter_azure import NODECLAIMS
from standins.azure import AzureFault
from tests.integration.azure_removal import SOURCE, TAGS, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, by_claim, sweeping
from tests.integration.command_line import knell
from workers.providers.azure.kinds import ADDRESS, DISK, NIC, VM

pytestmark = pytest.mark.long

__all__ = ["azure", "own_api", "removing", "sweeping"]

QUICK = 100.0
KEPT = ("vm", "nic", "disk", "ip")
STAYS = {**TAGS, "knell.dev_prevent-delete": "true"}


@pytest.fixture(autouse=True)
async def clock(sweeping: AzureSweepFixture) -> None:
    """What takes Azure ten seconds is done in a tenth of one."""
    await sweeping.cloud.azure.set_rate(QUICK)


async def deleted(sweeping: AzureSweepFixture, **metadata: Any) -> tuple[str, str]:
    """A NodeClaim is seen and goes, and leaves an interface; answers its name and uid."""
    claim = await sweeping.nic(tags=metadata.pop("tags", TAGS))
    uid = sweeping.cloud.claim(claim, **metadata)

    async def known() -> InventoryRecord | None:
        return await sweeping.inventory.get(uid)

    await sweeping.until("it is remembered", known)
    sweeping.cloud.unclaim(claim)
    return claim, uid


async def until_kept(sweeping: AzureSweepFixture, uid: str, why: str) -> None:
    async def kept() -> bool:
        found = await sweeping.inventory.get(uid)
        return found is not None and why in found.kept and found.gone > 0

    await sweeping.until(f"it is kept, for {why}", kept)


async def until_published(sweeping: AzureSweepFixture, uid: str) -> DeletionView:
    async def look() -> DeletionView | None:
        return (await sweeping.published()).get(f"{uid}/1")

    found = await sweeping.until("its deletion is published", look)
    assert found is not None
    return found


async def assert_left(sweeping: AzureSweepFixture, *names: str) -> None:
    """By whichever list, and however long ago: nothing of it is an orphan."""
    before = set(await sweeping.published())
    for listing in ("graph", "provider"):
        sweeping.sweeps(listing=listing)
        swept = await sweeping.ripe()
        assert (swept.found, swept.published) == (0, 0)
    assert set(await sweeping.published()) == before
    assert await sweeping.cloud.names("nic") == set(names)


# ---- what an object's own deletion left


@pytest.mark.invariant(10)
@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ({"knell.dev/prevent-delete": "true"}, "protected: "),
        ({DRY_RUN: "true"}, "dry-run: "),
        ({"knell.dev/deletion-policy": "perhaps"}, "hold: "),
    ],
)
async def test_what_a_held_deletion_would_have_removed_stays_when_a_person_drops_it(
    sweeping: AzureSweepFixture, marks: dict[str, str], why: str
) -> None:
    run = await sweeping.watch()
    await sweeping.work()
    claim, uid = await deleted(sweeping, annotations=marks)
    (held,) = await sweeping.until_state("held")
    assert held.held_why.startswith(why)

    async def dropped() -> bool:
        # While it is looked at again it is not held for a moment.
        return (await knell(sweeping, "held", "drop", f"deletion:{held.id}", "--yes")).code == 0

    await sweeping.until("it is dropped", dropped)
    # Until the next list, too, its record speaks for it.
    assert (await sweeping.ripe()).found == 0
    await sweeping.relist(run)
    await until_kept(sweeping, uid, "dropped")
    # Another round keeps it for good.
    await sweeping.until_state("done")
    found = await sweeping.cloud.calls().read(NIC, f"aks-{claim}")
    assert found is not None
    assert found.tags[RETAINED].endswith(f"/{claim}/{uid}")
    await assert_left(sweeping, f"aks-{claim}")


@pytest.mark.invariant(10)
async def test_what_an_abandoned_job_would_have_removed_stays(sweeping: AzureSweepFixture) -> None:
    await sweeping.watch()
    await sweeping.work()
    claim, uid = await deleted(sweeping, tags=STAYS)
    job = await sweeping.until_refused(await until_published(sweeping, uid), NIC)
    answer = await knell(sweeping, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer.err
    await sweeping.until_state("done")
    await until_kept(sweeping, uid, "left: ")
    await assert_left(sweeping, f"aks-{claim}")


@pytest.mark.invariant(10)
@pytest.mark.parametrize("tags", [TAGS, STAYS], ids=["denied", "protected"])
async def test_an_abandoned_machine_stays_with_all_that_it_uses(
    sweeping: AzureSweepFixture, tags: dict[str, str]
) -> None:
    """The job of its interface removes a machine that came late, but none that a person abandoned."""
    cloud, claim = sweeping.cloud, sweeping.cloud.name("a")
    name = f"aks-{claim}"
    await cloud.vm(name, nics=(name,), disk=name, tags=tags)
    await cloud.ip(name)
    await cloud.nic(name, vm=name, public_ip=name)
    await cloud.disk(name, vm=name)
    await cloud.azure.set_faults(AzureFault(what="deny", operation="vm.delete"))
    uid = await sweeping.remember(claim, gone=1, at=1)
    one = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid=uid, name=claim, source=SOURCE)
    await sweeping.publish(one)
    await sweeping.work()

    async def refused() -> str:
        if not (await sweeping.deletion(one)).get("plan"):
            return ""
        job = (await sweeping.jobs_of(one))[0]
        record = await sweeping.job(job)
        return job if (record["kind"], record.get("held")) == (VM.name, "1") else ""

    job = await sweeping.until("the job of the machine is held", refused)
    answer = await knell(sweeping, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer.err
    await cloud.azure.set_faults()
    await sweeping.until_done(one)
    assert {kind: await cloud.names(kind) for kind in KEPT} == {kind: {name} for kind in KEPT}
    said = [await sweeping.job(job) for job in await sweeping.jobs_of(one)]
    left = {record["kind"] for record in said if "was abandoned" in record.get("detail", "")}
    assert {NIC.name, DISK.name, ADDRESS.name} <= left


async def test_when_its_deletion_was_finished_before_the_watch_side_came_back_it_is_forgotten(
    sweeping: AzureSweepFixture,
) -> None:
    """A plain end is no decision: what comes to have its name later is an orphan as any other."""
    run = await sweeping.watch()
    await sweeping.work()
    _, uid = await deleted(sweeping)
    await sweeping.until_state("done")
    await sweeping.relist(run)
    assert await sweeping.inventory.get(uid) is None
    again = await sweeping.nic()
    assert set(await sweeping.found()) == {again}


# ---- what a sweep told of


async def machine(sweeping: AzureSweepFixture, **tags: dict[str, str]) -> str:
    """An orphaned machine and its interface, which outlives it; answers the name of their claim. `tags` are those of
    `vm` and `nic`."""
    claim = sweeping.cloud.name("a")
    name = f"aks-{claim}"
    await sweeping.cloud.vm(name, nics=(name,), keeps=(name,), tags=tags.get("vm", TAGS))
    await sweeping.cloud.nic(name, vm=name, tags=tags.get("nic", TAGS))
    return claim


async def test_an_interface_that_its_machine_left_has_no_second_deletion_while_the_first_is_open(
    sweeping: AzureSweepFixture,
) -> None:
    claim = await machine(sweeping, nic=STAYS)
    await sweeping.ripe()
    (one,) = (await sweeping.published()).values()
    await sweeping.work()
    # The machine is gone, and the interface is what is left of the same deletion.
    await sweeping.until_refused(one, NIC)
    assert await sweeping.cloud.names("vm") == set()
    for listing in ("provider", "graph"):
        sweeping.sweeps(listing=listing)
        swept = await sweeping.ripe()
        assert (swept.published, swept.known, by_claim(swept)[claim].becomes) == (0, 1, "known")
    assert len(await sweeping.published()) == 1


async def test_what_is_abandoned_of_an_orphaned_machine_is_left(sweeping: AzureSweepFixture) -> None:
    claim = await machine(sweeping, nic=STAYS)
    await sweeping.ripe()
    (one,) = (await sweeping.published()).values()
    await sweeping.work()
    job = await sweeping.until_refused(one, NIC)
    answer = await knell(sweeping, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer.err
    await sweeping.until_state("done")
    for listing in ("graph", "provider"):
        sweeping.sweeps(listing=listing)
        swept = await sweeping.ripe()
        assert (swept.published, by_claim(swept)[claim].becomes) == (0, "left")
    assert len(await sweeping.published()) == 1
    assert await sweeping.cloud.names("nic") == {f"aks-{claim}"}


async def test_what_is_left_of_a_machine_that_was_left_is_left_too(sweeping: AzureSweepFixture) -> None:
    """Somebody removed the machine by hand, and its interface is none that nobody has decided about."""
    name = f"aks-{sweeping.cloud.name('a')}"
    claim = await machine(sweeping, vm=STAYS, nic=STAYS)
    await sweeping.ripe()
    (one,) = (await sweeping.published()).values()
    await sweeping.work()
    for kind in (VM, NIC):
        if kind is NIC:
            await sweeping.cloud.azure.remove("vm", name, subscription=sweeping.cloud.subscription)
        job = await sweeping.until_refused(one, kind)
        answer = await knell(sweeping, "jobs", "abandon", job, "--yes")
        assert answer.code == 0, answer.err
    await sweeping.until_state("done")
    assert by_claim(await sweeping.ripe())[claim].becomes == "left"
    assert len(await sweeping.published()) == 1


async def test_another_resource_of_the_name_is_no_part_of_what_was_decided(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic(tags=STAYS)
    await sweeping.ripe()
    (one,) = (await sweeping.published()).values()
    await sweeping.work()
    job = await sweeping.until_refused(one, NIC)
    await knell(sweeping, "jobs", "abandon", job, "--yes")
    await sweeping.until_state("done")
    assert (await sweeping.found())[claim].becomes == "left"
    await sweeping.cloud.azure.remove("nic", f"aks-{claim}", subscription=sweeping.cloud.subscription)
    await sweeping.nic()
    # It has to wait as any other, and then it goes.
    assert (await sweeping.found())[claim].becomes == "waits"
    assert (await sweeping.ripe()).published == 1
    await sweeping.until_state("done", 2)
    assert await sweeping.cloud.names("nic") == set()


async def test_a_decision_outlives_a_pass_that_does_not_see_what_it_was_about(sweeping: AzureSweepFixture) -> None:
    claim = await sweeping.nic(tags=STAYS)
    await sweeping.ripe()
    (one,) = (await sweeping.published()).values()
    await sweeping.work()
    job = await sweeping.until_refused(one, NIC)
    await knell(sweeping, "jobs", "abandon", job, "--yes")
    await sweeping.until_state("done")
    assert (await sweeping.found())[claim].becomes == "left"
    await sweeping.cloud.azure.behave(graph_omits=[f"aks-{claim}"])
    assert await sweeping.found() == {}
    await sweeping.cloud.azure.behave(graph_omits=[])
    # The record of its deletion is not kept for ever, either.
    await sweeping.client.delete(f"{sweeping.shard(one.id).stem}deletion:{one.id}")
    swept = await sweeping.ripe()
    assert (swept.published, by_claim(swept)[claim].becomes) == (0, "left")
