"""A Node speaks for its machine: one that is Ready, was until just now, or can't be read keeps it, and that is seen."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from service.contract.azure import resource_name
from service.settings import load
from service.watching.role import Holder, manifests
from standins.controlplane import ControlPlane
from tests.karpenter import NODES
from tests.scenarios.azure.stage import VM, Stage
from tests.scenarios.granting import path_of, without

LONG = timedelta(minutes=11)


async def test_a_machine_whose_node_is_ready_is_held_and_shown_and_goes_when_the_node_is_gone(stage: Stage) -> None:
    uid, claim = await _gone(stage)
    node = await asyncio.to_thread(stage.node, claim)
    await stage.unclaimed(claim)
    job = await stage.until_told(claim, f"Node {node} runs on it and is Ready", kind=VM)
    assert job.held
    assert await stage.deletes() == []
    held = await asyncio.to_thread(stage.knell, "held", "list", "--output", "json")
    assert any(node in one["why"] for one in held.json["held"])
    await asyncio.to_thread(stage.unnode, node)
    await stage.until_done(uid)
    assert await stage.names() == set()


@pytest.mark.parametrize("ready", ["Unknown", "False"])
async def test_a_node_that_is_not_ready_for_long_does_not_protect_its_machine(stage: Stage, ready: str) -> None:
    uid, claim = await _gone(stage)
    await asyncio.to_thread(partial(stage.node, claim, ready=ready, since=LONG))
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()


async def test_a_node_that_is_not_ready_since_just_now_protects_until_it_is_so_for_long(stage: Stage) -> None:
    uid, claim = await _gone(stage)
    node = await asyncio.to_thread(partial(stage.node, claim, ready="Unknown", since=timedelta(minutes=9)))
    await stage.unclaimed(claim)
    await stage.until_told(claim, f"Node {node}", "less than 10 minutes", kind=VM)
    assert await stage.deletes() == []
    await asyncio.to_thread(stage.readiness, node, "Unknown", LONG)
    await stage.until_done(uid)


async def test_a_node_that_was_never_heard_of_protects(stage: Stage) -> None:
    """It has no condition at all: nobody knows whether it lives."""
    uid, claim = await _gone(stage)
    node = await asyncio.to_thread(partial(stage.node, claim, ready=""))
    await stage.unclaimed(claim)
    await stage.until_told(claim, f"Node {node}", "does not say", kind=VM)
    await asyncio.to_thread(stage.readiness, node, "False", LONG)
    await stage.until_done(uid)


@pytest.mark.parametrize("spelt", [str, str.upper], ids=["as Azure writes it", "in capitals"])
async def test_a_node_under_another_name_protects_by_its_provider_id(stage: Stage, spelt: type[str]) -> None:
    uid, claim = await _gone(stage)
    provider_id = f"azure://{spelt(stage.provider_id(claim).removeprefix('azure://'))}"
    name = stage.name("elsewhere")
    await asyncio.to_thread(partial(stage.node, claim, name=name, provider_id=provider_id))
    await stage.unclaimed(claim)
    await stage.until_told(claim, f"Node {name} runs on it", kind=VM)
    assert await stage.deletes() == []
    await asyncio.to_thread(stage.unnode, name)
    await stage.until_done(uid)


async def test_a_node_of_that_name_on_another_machine_does_not_protect(stage: Stage) -> None:
    uid, claim = await _gone(stage)
    elsewhere = stage.provider_id(claim).replace(stage.subscription, "99999999-9999-4999-8999-999999999999")
    await asyncio.to_thread(partial(stage.node, claim, provider_id=elsewhere))
    await stage.unclaimed(claim)
    await stage.until_done(uid)
    assert await stage.names() == set()


async def test_where_nodes_may_not_be_read_the_machine_is_held_and_goes_once_they_may(
    stage: Stage, plane: ControlPlane
) -> None:
    account = f"knell-{stage.home}"
    granted = manifests(load(stage.config(), {}), "here", Holder(stage.home, account))
    for item in granted:
        await asyncio.to_thread(stage.kube.create, path_of(item, collection=True), without(item, "nodes"))
    try:
        token = await asyncio.to_thread(plane.token_of, stage.home, account)
        way = plane.kubeconfig(stage.folder / "account", token=token)
        stage.document["clusters"]["here"]["kubeconfig"] = str(way)
        uid, claim = await _gone(stage)
        await stage.unclaimed(claim)
        job = await stage.until_told(claim, "its Node can't be read", "orbidden", kind=VM)
        assert job.held
        assert await stage.deletes() == []
        for item in granted:
            if "rules" in item:
                await asyncio.to_thread(stage.kube.patch, path_of(item), {"rules": item["rules"]})
        await stage.until_done(uid)
        assert await stage.names() == set()
    finally:
        for item in granted:
            await asyncio.to_thread(stage.kube.request, "DELETE", path_of(item))


async def _gone(stage: Stage) -> tuple[str, str]:
    """A claim with a machine, about to go."""
    await stage.start()
    claim = stage.name("a")
    uid = await stage.claimed(claim)
    await stage.vm(claim)
    assert stage.kube.get(f"{NODES}/{resource_name(claim)}") is None
    return uid, claim
