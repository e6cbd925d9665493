"""The witnesses of these stories have teeth: worlds with one thing wrong each, and the complaint about it."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from tests.scenarios.watch.evidence import assert_story
from tests.scenarios.watch.objects import ACCOUNT, BYSTANDER
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long

Fault = Callable[[World], Awaitable[Any]]


async def _call(world: World, id_: str) -> None:
    async with aiohttp.ClientSession() as session:
        await session.delete(f"{world.provider.address}/accounts/{ACCOUNT}/resources/{id_}")


async def _publish(world: World) -> None:
    made = world.made["vm"]
    event = Event(cluster=world.cluster, resource=made.crd.resource, uid=made.uid, name="vm", source="vms")
    await world.installation.publish([event])


async def _unmark(world: World) -> None:
    await world.admin.patch(world.made["vm"].path, {"metadata": {"finalizers": None}})


async def _delete(world: World) -> None:
    await world.admin.delete(world.made["vm"].path)


async def _vanish(world: World) -> None:
    await _unmark(world)
    await _delete(world)


async def _change(world: World) -> None:
    await world.admin.patch(world.made["vm"].path, {"spec": {"targets": []}})


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (lambda world: _call(world, "vm-0"), "something else was touched"),
        (lambda world: _call(world, BYSTANDER), "something else was touched"),
        (_publish, "published"),
        (_unmark, "our finalizer on vm"),
        (_delete, "vm was to stay"),
        (_vanish, "these were to stay"),
        (_change, "vm-0"),
    ],
)
async def test_whoever_should_stay_and_is_touched_is_noticed(world: World, fault: Fault, complaint: str) -> None:
    await world.make("vm", finalizers=[FINALIZER])
    await assert_story(world, [])
    await fault(world)
    with pytest.raises(AssertionError, match=complaint):
        await assert_story(world, [])


async def test_whoever_should_go_and_does_not_is_noticed(world: World) -> None:
    await world.make("vm", finalizers=[FINALIZER])
    with pytest.raises(AssertionError, match="these were to be released"):
        await assert_story(world, ["vm"])
    await _vanish(world)
    with pytest.raises(AssertionError, match="done"):
        await assert_story(world, ["vm"])
    with pytest.raises(AssertionError, match="not everything was removed exactly once"):
        await assert_story(world, ["vm"], recorded=[])
