"""Nodes that protect their machine: one that is Ready, was until just now, or can't be read; the record shows it."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.cli.rbac import ServiceAccount, role_manifests
from service.settings import load
from service.sources.karpenter_azure import resource_name
from standins.controlplane import ControlPlane
from tests.karpenter import NODES
from tests.scenarios.azure.azure_scenario import VM, AzureScenario
from tests.scenarios.rbac_roles import path_of, without

pytestmark = pytest.mark.long

LONG = timedelta(minutes=11)


async def test_a_machine_whose_node_is_ready_is_held_and_shown_and_goes_when_the_node_is_gone(
    scenario: AzureScenario,
) -> None:
    uid, claim = await _gone(scenario)
    node = await asyncio.to_thread(scenario.node, claim)
    await scenario.unclaimed(claim)
    job = await scenario.until_told(claim, f"Node {node} runs on it and is Ready", kind=VM)
    assert job.held
    assert await scenario.deletes() == []
    held = await asyncio.to_thread(scenario.knell, "held", "list", "--output", "json")
    assert any(node in one["why"] for one in held.json["held"])
    await asyncio.to_thread(scenario.unnode, node)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


@pytest.mark.parametrize("ready", ["Unknown", "False"])
async def test_a_node_that_is_not_ready_for_long_does_not_protect_its_machine(
    scenario: AzureScenario, ready: str
) -> None:
    uid, claim = await _gone(scenario)
    await asyncio.to_thread(partial(scenario.node, claim, ready=ready, since=LONG))
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


async def test_a_node_that_is_not_ready_since_just_now_protects_until_it_is_so_for_long(
    scenario: AzureScenario,
) -> None:
    uid, claim = await _gone(scenario)
    node = await asyncio.to_thread(partial(scenario.node, claim, ready="Unknown", since=timedelta(minutes=9)))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, f"Node {node}", "less than 10 minutes", kind=VM)
    assert await scenario.deletes() == []
    await asyncio.to_thread(scenario.readiness, node, "Unknown", LONG)
    await scenario.until_done(uid)


async def test_a_node_that_was_never_heard_of_protects(scenario: AzureScenario) -> None:
    """It has no condition at all: whether it lives is unknown."""
    uid, claim = await _gone(scenario)
    node = await asyncio.to_thread(partial(scenario.node, claim, ready=""))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, f"Node {node}", "does not say", kind=VM)
    await asyncio.to_thread(scenario.readiness, node, "False", LONG)
    await scenario.until_done(uid)


@pytest.mark.parametrize("spelt", [str, str.upper], ids=["as Azure writes it", "in capitals"])
async def test_a_node_under_another_name_protects_by_its_provider_id(scenario: AzureScenario, spelt: type[str]) -> None:
    uid, claim = await _gone(scenario)
    provider_id = f"azure://{spelt(scenario.provider_id(claim).removeprefix('azure://'))}"
    name = scenario.name("elsewhere")
    await asyncio.to_thread(partial(scenario.node, claim, name=name, provider_id=provider_id))
    await scenario.unclaimed(claim)
    await scenario.until_told(claim, f"Node {name} runs on it", kind=VM)
    assert await scenario.deletes() == []
    await asyncio.to_thread(scenario.unnode, name)
    await scenario.until_done(uid)


async def test_a_node_of_that_name_on_another_machine_does_not_protect(scenario: AzureScenario) -> None:
    uid, claim = await _gone(scenario)
    elsewhere = scenario.provider_id(claim).replace(scenario.subscription, "99999999-9999-4999-8999-999999999999")
    await asyncio.to_thread(partial(scenario.node, claim, provider_id=elsewhere))
    await scenario.unclaimed(claim)
    await scenario.until_done(uid)
    assert await scenario.names() == set()


async def test_where_nodes_may_not_be_read_the_machine_is_held_and_goes_once_they_may(
    scenario: AzureScenario, plane: ControlPlane
) -> None:
    account = f"knell-{scenario.home}"
    granted = role_manifests(load(scenario.config(), {}), "here", ServiceAccount(scenario.home, account))
    for item in granted:
        await asyncio.to_thread(scenario.kube.create, path_of(item, collection=True), without(item, "nodes"))
    try:
        token = await asyncio.to_thread(plane.token_of, scenario.home, account)
        way = plane.kubeconfig(scenario.folder / "account", token=token)
        scenario.document["clusters"]["here"]["kubeconfig"] = str(way)
        uid, claim = await _gone(scenario)
        await scenario.unclaimed(claim)
        job = await scenario.until_told(claim, "its Node can't be read", "orbidden", kind=VM)
        assert job.held
        assert await scenario.deletes() == []
        for item in granted:
            if "rules" in item:
                await asyncio.to_thread(scenario.kube.patch, path_of(item), {"rules": item["rules"]})
        await scenario.until_done(uid)
        assert await scenario.names() == set()
    finally:
        for item in granted:
            await asyncio.to_thread(scenario.kube.request, "DELETE", path_of(item))


async def _gone(scenario: AzureScenario) -> tuple[str, str]:
    """A claim with a machine, about to go."""
    await scenario.start()
    claim = scenario.name("a")
    uid = await scenario.claimed(claim)
    await scenario.vm(claim)
    assert scenario.kube.get(f"{NODES}/{resource_name(claim)}") is None
    return uid, claim
