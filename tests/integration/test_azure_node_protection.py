"""Node protection: whether a Node protects a machine, found by name or in the list; an unreadable Node protects it,
too."""

from datetime import timedelta

import pytest

from tests.integration.azure_removal import (
    NOT_READY,
    SOURCE,
    AzureRemovalFixture,
    azure,
    own_api,
    removing,
)
from tests.karpenter import NODES
from workers.collectors.karpenter_azure.node_protection import NodeProtection
from workers.providers.azure.kinds import VM

__all__ = ["azure", "own_api", "removing"]

LONG = NOT_READY + timedelta(minutes=1)


async def protects(removing: AzureRemovalFixture, claim: str, nodes: NodeProtection | None = None) -> str:
    name = f"aks-{claim}"
    found = await (nodes or removing.nodes).protects(SOURCE, removing.where.id(VM.type, name), name)
    return "" if found is None else f"{found.why}{' (waits)' if found.waits else ''}"


def lists(removing: AzureRemovalFixture) -> int:
    return removing.proxy.count("GET", "/nodes")


async def test_a_machine_without_a_node_is_not_protected(removing: AzureRemovalFixture) -> None:
    assert await protects(removing, removing.name("a")) == ""


async def test_a_node_that_is_ready_protects_its_machine_and_is_found_by_one_read(
    removing: AzureRemovalFixture,
) -> None:
    claim = removing.name("a")
    removing.node(claim)
    assert f"Node aks-{claim} runs on it and is Ready" in await protects(removing, claim)
    assert lists(removing) == 0


async def test_a_node_of_another_name_is_found_in_the_list(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    other = removing.node(claim, name=removing.name("odd"))
    assert f"Node {other} runs on it" in await protects(removing, claim)
    assert lists(removing) == 1


async def test_a_node_on_another_machine_protects_that_one_only(removing: AzureRemovalFixture) -> None:
    here, there = removing.name("a"), removing.name("b")
    removing.node(there, name=f"aks-{here}")
    assert await protects(removing, here) == ""
    assert await protects(removing, there) != ""


@pytest.mark.parametrize("status", ["False", "Unknown"])
async def test_a_node_that_is_not_ready_for_long_protects_nothing(removing: AzureRemovalFixture, status: str) -> None:
    claim = removing.name("a")
    node = removing.node(claim, ready=status, since=timedelta(minutes=1))
    assert "is not ready for less than 10 minutes (waits)" in await protects(removing, claim)
    removing.readiness(node, status, LONG)
    assert await protects(removing, claim) == ""
    removing.readiness(node, "True")
    assert "is Ready" in await protects(removing, claim)


async def test_how_long_it_is_not_ready_goes_by_the_clock_of_the_server(removing: AzureRemovalFixture) -> None:
    """Both times are the server's: one that is ahead of us by an hour has Nodes that went an hour later."""
    claim = removing.name("a")
    removing.node(claim, ready="False", since=-timedelta(minutes=30))
    assert "is not ready for less than" in await protects(removing, claim)
    at_once = NodeProtection(removing.places, timedelta(0))
    removing.readiness(f"aks-{claim}", "False", timedelta(seconds=5))
    assert await protects(removing, claim, at_once) == ""
    await at_once.aclose()


async def test_a_node_that_does_not_say_whether_it_is_ready_protects(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    node = removing.node(claim)
    for conditions in ([], [{"type": "Ready", "status": "False"}], [{"type": "MemoryPressure", "status": "False"}]):
        removing.kube.patch(f"{NODES}/{node}/status", {"status": {"conditions": conditions}})
        assert "is Ready, or does not say that it is not" in await protects(removing, claim)


async def test_a_node_of_its_name_that_does_not_say_yet_where_it_runs_protects(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    node = removing.node(claim)
    removing.kube.patch(f"{NODES}/{node}", {"spec": {"providerID": None}})
    assert f"Node aks-{claim} runs on it and is Ready" in await protects(removing, claim)


async def test_of_several_nodes_on_one_machine_the_one_that_lives_counts(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    removing.node(claim, ready="False", since=LONG)
    removing.node(claim, name=removing.name("m"))
    removing.node(claim, name=removing.name("z"), ready="False", since=LONG)
    assert f"Node {removing.name('m')} runs on it and is Ready" in await protects(removing, claim)


async def test_provider_ids_are_compared_without_case(removing: AzureRemovalFixture) -> None:
    claim = removing.name("a")
    node = removing.node(claim)
    loud = removing.provider_id(claim).replace("resourceGroups/mc", "RESOURCEGROUPS/MC").replace("virtual", "VIRTUAL")
    removing.kube.delete(f"{NODES}/{node}")
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"providerID": loud}}
    removing.kube.create(NODES, body)
    assert await protects(removing, claim) != ""


# ---- what can't be read


@pytest.mark.parametrize("status", [403, 500, 0])
async def test_nodes_that_cannot_be_read_protect(removing: AzureRemovalFixture, status: int) -> None:
    claim = removing.name("a")
    removing.proxy.refuse(status, lambda _method, path: "/nodes/" in path)
    assert "its Node can't be read" in await protects(removing, claim)
    removing.proxy.refuse(status, lambda _method, path: path.endswith("/nodes"))
    assert "its Node can't be read" in await protects(removing, claim)
    removing.proxy.pass_on()
    assert await protects(removing, claim) == ""


async def test_an_undecodable_node_protects_all_machines_without_a_node(
    removing: AzureRemovalFixture,
) -> None:
    claim, odd = removing.name("a"), removing.node(removing.name("b"))
    removing.kube.patch(f"{NODES}/{odd}/status", {"status": {"conditions": "none"}})
    assert "its Node can't be read: Unreadable" in await protects(removing, claim)
    assert "its Node can't be read: Unreadable" in await protects(removing, removing.name("b"))


async def test_without_a_way_to_the_cluster_everything_is_protected(removing: AzureRemovalFixture) -> None:
    nodes = NodeProtection(removing.reached({}), NOT_READY)
    assert "there is no way to the cluster of source nodeclaims" in await protects(removing, "a", nodes)
