"""`knell kept` on Azure: `forget` removes the service's tag from the resources and then the record; listing finds tags
without a record."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract import Event
from service.contract.kept import retained_value
from service.engine.inventory import InventoryRecord
from service.engine.kept_store import KeptStore
from service.sources.azure import KEEP_TAG, RETAINED
from service.sources.karpenter_azure import KARPENTER_AZURE, NODECLAIMS
from standins.azure import GROUP, REGION
from standins.azure.behaviour import AzureFault
from tests.integration.azure_removal import NAME, SOURCE, TAGS, AzureRemovalFixture, azure, own_api, removing
from tests.integration.azure_sweep import AzureSweepFixture, sweeping
from tests.integration.command_line import CommandResult, knell
from tests.integration.test_azure_kept_tagging import key, known, retained, tags
from workers.providers.azure.kinds import NIC

pytestmark = pytest.mark.long

__all__ = ["azure", "own_api", "removing", "sweeping"]


def config(sweeping: AzureSweepFixture, folder: Path, group: str = GROUP) -> Path:
    """Settings for a command, in a file."""
    where = {
        "subscription": sweeping.cloud.subscription, "resource_group": group, "region": REGION, "cluster": "prod",
    }  # fmt: skip
    kubeconfig = sweeping.settings.clusters["here"].kubeconfig
    found = {
        "clusters": {"here": {"kubeconfig": str(kubeconfig), "context": "local"}},
        "sources": {SOURCE: {"resource": NODECLAIMS, "collector": KARPENTER_AZURE, "mode": "observe"}},
        "azure": {"endpoint": sweeping.cloud.azure.address, "nodes": {SOURCE: [where]}},
    }
    path = folder / "knell.yaml"
    path.write_bytes(msgspec.json.encode(found))
    return path


async def forget(sweeping: AzureSweepFixture, path: Path, claim: str, *words: str) -> CommandResult:
    return await knell(
        sweeping, "--config", str(path), "kept", "forget", f"{key(sweeping)}/{claim}", "--yes", *words
    )  # fmt: skip


@pytest.mark.invariant(9)
@pytest.mark.invariant(10)
async def test_a_forgotten_interface_loses_tag_and_record_and_goes_with_the_next_claim_of_that_name(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, first = await retained(sweeping)
    answer = await forget(sweeping, config(sweeping, tmp_path), claim)
    assert answer.code == 0, answer.err
    assert "taken off 1 resources" in answer.out
    assert await known(sweeping, claim) == []
    assert await sweeping.inventory.get(first.uid) is None
    assert await tags(sweeping, claim) == TAGS
    later = Event(cluster=sweeping.identity, resource=NODECLAIMS, uid="later", name=claim, source=SOURCE)
    await sweeping.inventory.save({"later": InventoryRecord(v=1, name=claim, gone=1, at=1)})
    await sweeping.publish(later)
    # Azure takes its time to remove the interface.
    await sweeping.cloud.azure.set_rate(10)
    await sweeping.until_done(later)
    assert await sweeping.cloud.names() == set()


@pytest.mark.invariant(10)
async def test_the_tag_of_another_claim_and_the_tag_of_a_person_stay(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, _ = await retained(sweeping)
    others = retained_value(sweeping.identity, NODECLAIMS, "", claim, "another")
    await sweeping.cloud.calls().tag(NIC, f"aks-{claim}", {RETAINED: others, KEEP_TAG: "true"})
    answer = await forget(sweeping, config(sweeping, tmp_path), claim)
    assert answer.code == 0, answer.err
    assert f"keeps its tag, which is of another object: {others}" in answer.out
    assert await tags(sweeping, claim) == {**TAGS, RETAINED: others, KEEP_TAG: "true"}


@pytest.mark.invariant(10)
@pytest.mark.parametrize("fault", [
    AzureFault(what="deny", operation="nic.tag"), AzureFault(what="deny", operation="nic.get"),
    AzureFault(what="throttle", operation="nic.tag"), AzureFault(what="close", operation="nic.tag"),
])  # fmt: skip
async def test_a_tag_that_can_not_be_taken_off_leaves_the_record_and_names_the_command(
    sweeping: AzureSweepFixture, tmp_path: Path, fault: AzureFault
) -> None:
    claim, _ = await retained(sweeping)
    before, path = await known(sweeping, claim), config(sweeping, tmp_path)
    await sweeping.cloud.azure.set_faults(fault)
    answer = await forget(sweeping, path, claim)
    assert (answer.code, await known(sweeping, claim)) == (1, before)
    (resource,) = before[0].resources
    by_hand = f"az tag update --operation Delete --resource-id {resource.id} --tags {RETAINED}"
    assert f"{NIC.name} {resource.id} may still carry the tag: " in answer.err
    assert by_hand in answer.err
    assert "--record-only" in answer.err


async def test_a_command_that_ended_between_the_tags_and_the_record_can_be_repeated(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, _ = await retained(sweeping)
    before, path = await known(sweeping, claim), config(sweeping, tmp_path)
    # The tag goes, and the command never hears of it.
    await sweeping.cloud.azure.set_faults(AzureFault(what="lost", operation="nic.tag", times=1))
    answer = await forget(sweeping, path, claim)
    assert (answer.code, await known(sweeping, claim)) == (1, before)
    assert await tags(sweeping, claim) == TAGS
    answer = await forget(sweeping, path, claim)
    assert answer.code == 0, answer.err
    assert await known(sweeping, claim) == []


@pytest.mark.invariant(8)
async def test_a_group_that_the_settings_do_not_name_is_not_touched(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, _ = await retained(sweeping)
    path = config(sweeping, tmp_path, "elsewhere")
    answer = await forget(sweeping, path, claim)
    assert answer.code == 1
    assert f"azure.nodes names no group {GROUP.lower()}" in answer.err
    assert RETAINED in await tags(sweeping, claim)
    answer = await forget(sweeping, path, claim, "--record-only")
    assert answer.code == 0, answer.err
    assert await known(sweeping, claim) == []
    assert RETAINED in await tags(sweeping, claim)


@pytest.mark.invariant(10)
async def test_tags_that_an_incomplete_record_does_not_name_are_taken_off_as_well(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, _ = await retained(sweeping)
    (decision,) = await known(sweeping, claim)
    bare = msgspec.structs.replace(decision, resources=(), remark="not marked: nic.tag: no answer")
    await KeptStore(sweeping.installation).save(bare)
    answer = await forget(sweeping, config(sweeping, tmp_path), claim)
    assert answer.code == 0, answer.err
    assert await tags(sweeping, claim) == TAGS


async def test_tags_without_a_record_are_found_in_the_groups_of_the_settings(
    sweeping: AzureSweepFixture, tmp_path: Path
) -> None:
    claim, one = await retained(sweeping)
    words = ("--config", str(config(sweeping, tmp_path)), "kept", "list", "--tags", "--output", "json")
    found: Any = (await knell(sweeping, *words)).json
    assert (len(found["kept"]), found["unrecorded"], found["unread"]) == (1, [], [])
    await KeptStore(sweeping.installation).remove(f"{key(sweeping)}/{claim}", one.uid)
    await sweeping.cloud.azure.set_faults(AzureFault(what="deny", operation="disk.list"))
    found = (await knell(sweeping, *words)).json
    ((kind, value),) = [(each["kind"], each["value"]) for each in found["unrecorded"]]
    assert (kind, value) == (NIC.name, f"{sweeping.identity}/{NODECLAIMS}//{claim}/{one.uid}")
    assert [each["why"].partition(":")[0] for each in found["unread"]] == ["azure-disk"]


async def test_in_the_stand_in_tags_go_as_on_azure(removing: AzureRemovalFixture) -> None:
    """By name in whatever case, and only with the value that is given."""
    await removing.nic()
    calls = removing.calls()
    await calls.tag(NIC, NAME, {RETAINED: "so"})
    await calls.untag(NIC, NAME, {RETAINED: "otherwise"})
    found = await calls.read(NIC, NAME)
    assert found is not None
    assert found.tags[RETAINED] == "so"
    await calls.untag(NIC, NAME, {RETAINED.upper(): "so"})
    found = await calls.read(NIC, NAME)
    assert found is not None
    assert found.tags == TAGS
