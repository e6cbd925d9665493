"""Lists of sweeps: Resource Graph, which is late and incomplete, and the providers' own lists. A list that is denied,
throttled, broken or incomplete gives no result about anything; the next pass continues from there."""

import asyncio
from typing import Any

import pytest

from service.cli.rbac import ServiceAccount, role_manifests
from service.settings import load
from service.sources.karpenter_azure import resource_name
from standins.azure import AzureFault, Nic, Vm
from standins.controlplane import ControlPlane
from tests.scenarios.azure.azure_scenario import TAGS, AzureScenario
from tests.scenarios.rbac_roles import path_of, without

pytestmark = pytest.mark.long

AT_ONCE = "0s"
LATE = 100_000.0
"""A lag longer than any test."""
ROWS = 1_200
"""More than a page of Resource Graph has."""


async def test_a_row_of_what_is_proven_gone_has_the_providers_asked_and_nothing_is_done_twice(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.nic(claim)
    await scenario.azure.behave(graph_lag=LATE)
    await scenario.start()
    await scenario.until_gone(claim)

    async def by_provider() -> bool:
        return bool(await scenario.asked("nic.list")) and (await scenario.swept()).get("sweep_by") == "provider"

    await scenario.until("the providers are asked", by_provider)
    await scenario.passes(3)
    (record,) = await scenario.deletions()
    assert (record.state, record.round) == ("done", 1)
    assert len(await scenario.deletes()) == 1


async def test_a_row_that_is_late_about_a_machine_does_not_make_its_interface_go(scenario: AzureScenario) -> None:
    """By Resource Graph the interface has no machine; by now it has one, which is read before anything is done."""
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    name = resource_name(claim)
    await scenario.nic(claim)
    await scenario.azure.behave(graph_lag=LATE)
    await scenario.azure.make(Vm(name=name, tags=TAGS, subscription=scenario.subscription, nics=(name,)))
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()
    await scenario.until_told(claim, f"virtual machine {name}")
    assert await scenario.deletes() == []
    assert {one.kind for one in await scenario.there()} == {"vm", "nic"}


async def test_a_row_that_is_late_about_a_newer_interface_does_not_make_that_one_go(scenario: AzureScenario) -> None:
    scenario.sweeping(enabled=False, age=AT_ONCE)
    claim = scenario.name("a")
    await scenario.nic(claim)
    await scenario.azure.behave(graph_lag=LATE)
    await scenario.azure.remove("nic", resource_name(claim), subscription=scenario.subscription)
    guid = await scenario.nic(claim)
    await scenario.start()
    for _ in range(2):
        await scenario.sweep()

    async def over() -> bool:
        return [one.state for one in await scenario.deletions()] == ["done"]

    await scenario.until("the old one is known to be gone", over)
    assert await scenario.deletes() == []
    assert [one.guid for one in await scenario.there()] == [guid]


async def test_what_resource_graph_omits_is_found_by_the_providers_lists(scenario: AzureScenario) -> None:
    scenario.sweeping(age=AT_ONCE)
    shown, omitted = scenario.name("a"), scenario.name("b")
    for claim in (shown, omitted):
        await scenario.nic(claim)
    await scenario.azure.behave(graph_omits=(resource_name(omitted),))
    service = await scenario.start()
    await scenario.until_gone(shown)
    await scenario.passes(2)
    assert await scenario.names() == {resource_name(omitted)}
    await service.stop()
    scenario.sweeping(listing="provider")
    await scenario.start()
    await scenario.until_gone(omitted)
    assert len(await scenario.deletions()) == 2


async def test_where_resource_graph_is_denied_the_providers_lists_serve(scenario: AzureScenario) -> None:
    scenario.sweeping(age=AT_ONCE)
    await scenario.trouble("deny", "graph.query")
    await scenario.azure.behave(network_page=2)
    claims = [scenario.name(str(number)) for number in range(5)]
    for claim in claims:
        await scenario.nic(claim)
    await scenario.vm(scenario.name("machine"))
    await scenario.start()
    await scenario.until_gone(*claims, scenario.name("machine"))
    assert (await scenario.swept())["sweep_by"] == "provider"
    assert len(await scenario.asked("nic.list")) >= 6


@pytest.mark.parametrize(
    ("operation", "what", "given", "words"),
    [
        ("graph.query", "throttle", {}, "RateLimiting"),
        ("graph.query", "error", {"code": "InternalServerError"}, "InternalServerError"),
        ("graph.query", "html", {"status": 200}, "no answer of Azure"),
        ("graph.query", "close", {}, "NoConnection"),
        ("nic.list", "throttle", {}, "list Microsoft.Network/networkInterfaces"),
        ("nic.list", "error", {"code": "ResourceGroupNotFound", "status": 404}, "ResourceGroupNotFound"),
        ("nic.list", "html", {"status": 200}, "no answer of Azure"),
        ("vm.list", "deny", {}, "Microsoft.Compute/virtualMachines/read"),
    ],
)
async def test_a_list_that_fails_says_nothing_about_anything_and_the_next_one_does(
    scenario: AzureScenario, operation: str, what: Any, given: dict[str, Any], words: str
) -> None:
    scenario.sweeping(age=AT_ONCE, listing="graph" if operation == "graph.query" else "provider")
    known, late = scenario.name("a"), scenario.name("b")
    await scenario.nic(known)
    await scenario.sweep()
    before = await scenario.sighting(known)
    assert before is not None
    await scenario.nic(late)
    await scenario.trouble(what, operation, **given)
    await scenario.start()
    await scenario.until_no_pass(words)
    # What was seen before is neither forgotten nor counted once more.
    assert await scenario.sighting(known) == before
    assert await scenario.orphans.size() == 1
    assert await scenario.deletions() == []
    await scenario.azure.set_faults()
    await scenario.until_gone(known, late)
    assert "problem@sweep" not in await scenario.swept()


async def test_a_list_that_breaks_off_in_the_middle_says_nothing_about_what_it_had_shown(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(age=AT_ONCE, listing="provider")
    claims = [scenario.name(str(number)) for number in range(5)]
    for claim in claims:
        await scenario.nic(claim)
    await scenario.azure.behave(network_page=2)
    await scenario.trouble("gate", "nic.list")
    await scenario.start()
    await scenario.until_delayed("nic.list")
    # Its first page comes, its second does not.
    await scenario.trouble("error", "nic.list", code="InternalServerError")
    await scenario.azure.open()
    await scenario.until_no_pass("InternalServerError")
    assert [one.status for one in await scenario.asked("nic.list")][:2] == [200, 500]
    assert await scenario.orphans.size() == 0
    assert await scenario.deletions() == []
    await scenario.azure.set_faults()
    await scenario.until_gone(*claims)


async def test_what_goes_between_two_pages_of_resource_graph_does_not_keep_sweeps_from_being_made(
    scenario: AzureScenario,
) -> None:
    """In a large group something always goes while it is listed."""
    scenario.sweeping(enabled=False)
    names = [resource_name(scenario.name(f"{number:04}")) for number in range(ROWS)]
    await scenario.azure.make(*(Nic(name=name, tags=TAGS, subscription=scenario.subscription) for name in names))
    await scenario.trouble("gate", "graph.query")
    sweeping = asyncio.ensure_future(scenario.sweep())
    for _ in range(2):
        # The machines, and the first page of the interfaces.
        await scenario.until_delayed("graph.query")
        await scenario.azure.open()
    await scenario.until_delayed("graph.query")
    await scenario.azure.remove("nic", names[-1], subscription=scenario.subscription)
    await scenario.azure.set_faults()
    await scenario.azure.open()
    found = await sweeping
    assert len(found["orphans"]) == ROWS - 1


async def test_where_nodeclaims_may_not_be_listed_nothing_is_orphaned(
    scenario: AzureScenario, plane: ControlPlane
) -> None:
    scenario.sweeping(age=AT_ONCE)
    await scenario.nic(scenario.name("a"))
    account = f"knell-{scenario.home}"
    granted = role_manifests(load(scenario.config(), {}), "here", ServiceAccount(scenario.home, account))
    for item in granted:
        await asyncio.to_thread(scenario.kube.create, path_of(item, collection=True), without(item, "nodeclaims"))
    try:
        token = await asyncio.to_thread(plane.token_of, scenario.home, account)
        way = plane.kubeconfig(scenario.folder / "account", token=token)
        scenario.document["clusters"]["here"]["kubeconfig"] = str(way)
        await scenario.start(watches=False)
        await scenario.until_no_pass("orbidden", "nodeclaims")
        assert await scenario.orphans.size() == 0
        assert await scenario.deletions() == []
    finally:
        for item in granted:
            await asyncio.to_thread(scenario.kube.request, "DELETE", path_of(item))


async def test_a_group_that_is_not_there_makes_no_pass(scenario: AzureScenario) -> None:
    scenario.document["azure"]["nodes"] = {"nodeclaims": [scenario.nodes(resource_group="mc_elsewhere")]}
    scenario.sweeping(age=AT_ONCE, listing="provider")
    await scenario.start(watches=False)
    await scenario.until_no_pass("ResourceGroupNotFound", "mc_elsewhere")
    assert "sweep_at" not in await scenario.swept()


async def test_an_azure_that_has_no_room_for_lists_is_asked_again_and_events_go_on_meanwhile(
    scenario: AzureScenario,
) -> None:
    scenario.sweeping(age=AT_ONCE)
    await scenario.azure.set_faults(AzureFault(what="throttle", operation="graph.query", about=scenario.subscription))
    await scenario.start()
    claim, orphan = scenario.name("a"), scenario.name("b")
    uid = await scenario.claimed(claim)
    await scenario.nic(claim)
    await scenario.nic(orphan)
    await scenario.until_no_pass("RateLimiting")
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == {resource_name(orphan)}
    await scenario.azure.set_faults()
    await scenario.until_gone(orphan)
