"""Commands of an operator about nodes on Azure: sweep, plan, doctor, role."""

import asyncio
from typing import Any

import pytest

from service.sources.karpenter_azure import resource_name
from standins.azure import AzureFault
from tests.integration.command_line import CommandResult
from tests.scenarios.azure.azure_scenario import SOURCE, AzureScenario

pytestmark = pytest.mark.long


async def knell(scenario: AzureScenario, *words: str) -> CommandResult:
    return await asyncio.to_thread(scenario.knell, *words)


async def swept(scenario: AzureScenario, *words: str) -> Any:
    answer = await knell(scenario, "sweep", SOURCE, "--output", "json", *words)
    assert answer.code == 0, answer.err
    (found,) = answer.json["sweeps"]
    return found


async def remembered(scenario: AzureScenario) -> int:
    return int(
        await scenario.installation.caller.command("HLEN", scenario.installation.keys.of(0, f"orphans:{SOURCE}"))
    )


async def test_a_rehearsed_sweep_shows_what_it_would_do_and_writes_nothing(scenario: AzureScenario) -> None:
    orphan, living = scenario.name("orphan"), scenario.name("living")
    await scenario.nic(orphan)
    await scenario.nic(living)
    await asyncio.to_thread(scenario.claim, living)
    found = await swept(scenario, "--dry-run")
    assert [(one["claim"], one["what"], one["becomes"]) for one in found["orphans"]] == [
        (orphan, "network interface", "waits")
    ]
    assert await remembered(scenario) == 0
    table = await knell(scenario, "sweep", "--dry-run")
    assert orphan in table.out
    assert living not in table.out
    assert "Nothing was written" in table.out
    assert await scenario.deletes() == []


async def test_a_sweep_by_hand_tells_what_was_orphaned_twice_and_long_enough(scenario: AzureScenario) -> None:
    scenario.document["azure"]["sweep"]["age"] = "0s"
    await scenario.vm(scenario.name("a"))
    first = await swept(scenario)
    assert [one["becomes"] for one in first["orphans"]] == ["waits"]
    assert await remembered(scenario) == 1
    would = await swept(scenario, "--dry-run")
    assert [one["becomes"] for one in would["orphans"]] == ["would be told"]
    second = await swept(scenario)
    assert [(one["what"], one["becomes"]) for one in second["orphans"]] == [("virtual machine", "told")]
    third = await swept(scenario)
    assert [one["becomes"] for one in third["orphans"]] == ["known"]
    await scenario.start()
    await scenario.until_gone(scenario.name("a"))


async def test_a_sweep_that_could_not_list_everything_says_so_and_knows_nothing(scenario: AzureScenario) -> None:
    await scenario.nic(scenario.name("a"))
    await scenario.azure.set_faults(AzureFault(what="error", operation="*", code="InternalServerError", status=500))
    answer = await knell(scenario, "sweep")
    assert answer.code == 1
    assert "nothing is known of anything" in answer.err
    assert await remembered(scenario) == 0


async def test_a_source_that_is_not_swept_is_named_as_such(scenario: AzureScenario) -> None:
    answer = await knell(scenario, "sweep", "widgets")
    assert answer.code == 2
    assert f"those that are: {SOURCE}" in answer.err


async def test_a_plan_counts_what_is_there_and_names_what_would_be_looked_for(scenario: AzureScenario) -> None:
    claim = scenario.name("a")
    await asyncio.to_thread(scenario.claim, claim)
    await scenario.nic(claim)
    answer = await knell(scenario, "plan", f"nodeclaims.karpenter.sh/{claim}", "--output", "json")
    assert answer.code == 0, answer.err
    assert [(one["kind"], one["id"]) for one in answer.json["targets"]] == [
        ("azure-network-interface", resource_name(claim))
    ]
    remark = answer.json["remark"]
    assert remark.startswith("looked for and not there now: ")
    order = [remark.index(kind) for kind in ("azure-virtual-machine", "azure-disk")]
    assert order == sorted(order)
    assert "1 resource would be removed" in (await knell(scenario, "plan", f"nodeclaims.karpenter.sh/{claim}")).out
    assert await scenario.deletes() == []


async def test_the_doctor_finds_groups_that_answer_and_those_that_do_not(scenario: AzureScenario) -> None:
    await scenario.nic(scenario.name("a"))
    scenario.document["azure"]["nodes"][SOURCE].append(scenario.nodes(resource_group="nobody"))
    answer = await knell(scenario, "doctor", "--output", "json")
    found = {(one["check"], one["node"].partition(" ")[0], one["state"]) for one in answer.json["findings"]}
    assert ("Azure", "mc_pool", "fine") in found
    assert ("Resource Graph", "mc_pool", "fine") in found
    assert ("Azure", "nobody", "wrong") in found
    assert answer.code == 1


async def test_the_doctor_says_which_permission_is_missing(scenario: AzureScenario) -> None:
    faults = [
        AzureFault(what="deny", operation=one, subscription=scenario.subscription) for one in ("nic.list", "disk.get")
    ]
    await scenario.azure.set_faults(*faults)
    answer = await knell(scenario, "doctor", "--output", "json")
    (denied,) = [one for one in answer.json["findings"] if one["check"] == "Azure" and one["state"] == "wrong"]
    words = "may not Microsoft.Network/networkInterfaces/read, Microsoft.Compute/disks/read on this group"
    assert (words in denied["what"], "AuthorizationFailed" in denied["what"]) == (True, True)
    assert "role-definition.json" in denied["mend"]


async def test_the_doctor_reads_one_of_each_kind_in_every_group(scenario: AzureScenario) -> None:
    for kind in ("vm.list", "nic.list", "disk.get", "ip.get"):
        await scenario.azure.set_faults(AzureFault(what="deny", operation=kind, subscription=scenario.subscription))
        answer = await knell(scenario, "doctor", "--output", "json")
        assert [one["state"] for one in answer.json["findings"] if one["check"] == "Azure"] == ["wrong"], kind


async def test_the_role_lets_nodes_be_read_and_one_process_sweep(scenario: AzureScenario) -> None:
    answer = await knell(scenario, "role", "--output", "json")
    assert answer.code == 0, answer.err
    rules = [rule for one in answer.json["items"] for rule in one.get("rules", ())]
    assert {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]} in rules
    leases = [rule for rule in rules if "leases" in rule["resources"] and "resourceNames" in rule]
    # The second is for `knell uninstall`, in a role of its own.
    assert [rule["verbs"] for rule in leases] == [["get", "patch"], ["delete"]]
    assert all(rule["resourceNames"] == [f"knell-{SOURCE}-0", f"knell-{SOURCE}-sweep"] for rule in leases)
    assert not any("patch" in rule["verbs"] and "nodeclaims" in rule["resources"] for rule in rules)
