"""How sweeps list: Resource Graph, which is late and does not show everything, and the providers' own lists. A list
that is denied, throttled, broken or not whole means no verdict about anything; the next pass goes on from there."""

import asyncio
from typing import Any

import pytest

from service.contract.azure import resource_name
from service.settings import load
from service.watching.role import Holder, manifests
from standins.azure import Fault, Nic, Vm
from standins.controlplane import ControlPlane
from tests.scenarios.azure.stage import TAGS, Stage
from tests.scenarios.granting import path_of, without

pytestmark = pytest.mark.long

AT_ONCE = "0s"
LATE = 100_000.0
"""A lag longer than any test."""
ROWS = 1_200
"""More than a page of Resource Graph has."""


async def test_a_row_of_what_is_proven_gone_has_the_providers_asked_and_nothing_is_done_twice(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE)
    claim = stage.name("a")
    await stage.nic(claim)
    await stage.azure.behave(graph_lag=LATE)
    await stage.start()
    await stage.until_gone(claim)

    async def by_provider() -> bool:
        return bool(await stage.asked("nic.list")) and (await stage.swept()).get("sweep_by") == "provider"

    await stage.until("the providers are asked", by_provider)
    await stage.passes(3)
    (record,) = await stage.deletions()
    assert (record.state, record.round) == ("done", 1)
    assert len(await stage.deletes()) == 1


async def test_a_row_that_is_late_about_a_machine_does_not_make_its_interface_go(stage: Stage) -> None:
    """By Resource Graph the interface has no machine; by now it has one, which is read before anything is done."""
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    name = resource_name(claim)
    await stage.nic(claim)
    await stage.azure.behave(graph_lag=LATE)
    await stage.azure.make(Vm(name=name, tags=TAGS, subscription=stage.subscription, nics=(name,)))
    await stage.start()
    for _ in range(2):
        await stage.sweep()
    await stage.until_told(claim, f"virtual machine {name}")
    assert await stage.deletes() == []
    assert {one.kind for one in await stage.there()} == {"vm", "nic"}


async def test_a_row_that_is_late_about_a_newer_interface_does_not_make_that_one_go(stage: Stage) -> None:
    stage.sweeping(enabled=False, age=AT_ONCE)
    claim = stage.name("a")
    await stage.nic(claim)
    await stage.azure.behave(graph_lag=LATE)
    await stage.azure.remove("nic", resource_name(claim), subscription=stage.subscription)
    guid = await stage.nic(claim)
    await stage.start()
    for _ in range(2):
        await stage.sweep()

    async def over() -> bool:
        return [one.state for one in await stage.deletions()] == ["done"]

    await stage.until("the old one is known to be gone", over)
    assert await stage.deletes() == []
    assert [one.guid for one in await stage.there()] == [guid]


async def test_what_resource_graph_omits_is_found_by_the_providers_lists(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE)
    shown, omitted = stage.name("a"), stage.name("b")
    for claim in (shown, omitted):
        await stage.nic(claim)
    await stage.azure.behave(graph_omits=(resource_name(omitted),))
    service = await stage.start()
    await stage.until_gone(shown)
    await stage.passes(2)
    assert await stage.names() == {resource_name(omitted)}
    await service.stop()
    stage.sweeping(listing="provider")
    await stage.start()
    await stage.until_gone(omitted)
    assert len(await stage.deletions()) == 2


async def test_where_resource_graph_is_denied_the_providers_lists_serve(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE)
    await stage.trouble("deny", "graph.query")
    await stage.azure.behave(network_page=2)
    claims = [stage.name(str(number)) for number in range(5)]
    for claim in claims:
        await stage.nic(claim)
    await stage.vm(stage.name("machine"))
    await stage.start()
    await stage.until_gone(*claims, stage.name("machine"))
    assert (await stage.swept())["sweep_by"] == "provider"
    assert len(await stage.asked("nic.list")) >= 6


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
    stage: Stage, operation: str, what: Any, given: dict[str, Any], words: str
) -> None:
    stage.sweeping(age=AT_ONCE, listing="graph" if operation == "graph.query" else "provider")
    known, late = stage.name("a"), stage.name("b")
    await stage.nic(known)
    await stage.sweep()
    before = await stage.sighting(known)
    assert before is not None
    await stage.nic(late)
    await stage.trouble(what, operation, **given)
    await stage.start()
    await stage.until_no_pass(words)
    # What was seen before is neither forgotten nor counted once more.
    assert await stage.sighting(known) == before
    assert await stage.orphans.size() == 1
    assert await stage.deletions() == []
    await stage.azure.trouble()
    await stage.until_gone(known, late)
    assert "problem@sweep" not in await stage.swept()


async def test_a_list_that_breaks_off_in_the_middle_says_nothing_about_what_it_had_shown(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE, listing="provider")
    claims = [stage.name(str(number)) for number in range(5)]
    for claim in claims:
        await stage.nic(claim)
    await stage.azure.behave(network_page=2)
    await stage.trouble("gate", "nic.list")
    await stage.start()
    await stage.until_delayed("nic.list")
    # Its first page comes, its second does not.
    await stage.trouble("error", "nic.list", code="InternalServerError")
    await stage.azure.open()
    await stage.until_no_pass("InternalServerError")
    assert [one.status for one in await stage.asked("nic.list")][:2] == [200, 500]
    assert await stage.orphans.size() == 0
    assert await stage.deletions() == []
    await stage.azure.trouble()
    await stage.until_gone(*claims)


async def test_what_goes_between_two_pages_of_resource_graph_does_not_keep_sweeps_from_being_made(
    stage: Stage,
) -> None:
    """In a large group something always goes while it is listed."""
    stage.sweeping(enabled=False)
    names = [resource_name(stage.name(f"{number:04}")) for number in range(ROWS)]
    await stage.azure.make(*(Nic(name=name, tags=TAGS, subscription=stage.subscription) for name in names))
    await stage.trouble("gate", "graph.query")
    sweeping = asyncio.ensure_future(stage.sweep())
    for _ in range(2):
        # The machines, and the first page of the interfaces.
        await stage.until_delayed("graph.query")
        await stage.azure.open()
    await stage.until_delayed("graph.query")
    await stage.azure.remove("nic", names[-1], subscription=stage.subscription)
    await stage.azure.trouble()
    await stage.azure.open()
    found = await sweeping
    assert len(found["orphans"]) == ROWS - 1


async def test_where_nodeclaims_may_not_be_listed_nothing_is_orphaned(stage: Stage, plane: ControlPlane) -> None:
    stage.sweeping(age=AT_ONCE)
    await stage.nic(stage.name("a"))
    account = f"knell-{stage.home}"
    granted = manifests(load(stage.config(), {}), "here", Holder(stage.home, account))
    for item in granted:
        await asyncio.to_thread(stage.kube.create, path_of(item, collection=True), without(item, "nodeclaims"))
    try:
        token = await asyncio.to_thread(plane.token_of, stage.home, account)
        way = plane.kubeconfig(stage.folder / "account", token=token)
        stage.document["clusters"]["here"]["kubeconfig"] = str(way)
        await stage.start(watches=False)
        await stage.until_no_pass("orbidden", "nodeclaims")
        assert await stage.orphans.size() == 0
        assert await stage.deletions() == []
    finally:
        for item in granted:
            await asyncio.to_thread(stage.kube.request, "DELETE", path_of(item))


async def test_a_group_that_is_not_there_makes_no_pass(stage: Stage) -> None:
    stage.document["azure"]["nodes"] = {"nodeclaims": [stage.nodes(resource_group="mc_elsewhere")]}
    stage.sweeping(age=AT_ONCE, listing="provider")
    await stage.start(watches=False)
    await stage.until_no_pass("ResourceGroupNotFound", "mc_elsewhere")
    assert "sweep_at" not in await stage.swept()


async def test_an_azure_that_has_no_room_for_lists_is_asked_again_and_events_go_on_meanwhile(stage: Stage) -> None:
    stage.sweeping(age=AT_ONCE)
    await stage.azure.trouble(Fault(what="throttle", operation="graph.query", about=stage.subscription))
    await stage.start()
    claim, orphan = stage.name("a"), stage.name("b")
    uid = await stage.claimed(claim)
    await stage.nic(claim)
    await stage.nic(orphan)
    await stage.until_no_pass("RateLimiting")
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == {resource_name(orphan)}
    await stage.azure.trouble()
    await stage.until_gone(orphan)
