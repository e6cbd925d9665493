"""Checks after the scenarios, on states with one mistake each, and the complaint about it."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from tests.scenarios.watch.evidence import assert_story
from tests.scenarios.watch.objects import ACCOUNT, BYSTANDER
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long

Fault = Callable[[WatchScenario], Awaitable[Any]]


async def _call(scenario: WatchScenario, id_: str) -> None:
    async with aiohttp.ClientSession() as session:
        await session.delete(f"{scenario.provider.address}/accounts/{ACCOUNT}/resources/{id_}")


async def _publish(scenario: WatchScenario) -> None:
    made = scenario.made["vm"]
    event = Event(cluster=scenario.cluster, resource=made.crd.resource, uid=made.uid, name="vm", source="vms")
    await scenario.installation.publish([event])


async def _unmark(scenario: WatchScenario) -> None:
    await scenario.admin.patch(scenario.made["vm"].path, {"metadata": {"finalizers": None}})


async def _delete(scenario: WatchScenario) -> None:
    await scenario.admin.delete(scenario.made["vm"].path)


async def _vanish(scenario: WatchScenario) -> None:
    await _unmark(scenario)
    await _delete(scenario)


async def _change(scenario: WatchScenario) -> None:
    await scenario.admin.patch(scenario.made["vm"].path, {"spec": {"targets": []}})


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (lambda scenario: _call(scenario, "vm-0"), "something else was touched"),
        (lambda scenario: _call(scenario, BYSTANDER), "something else was touched"),
        (_publish, "published"),
        (_unmark, "our finalizer on vm"),
        (_delete, "vm was to stay"),
        (_vanish, "these were to stay"),
        (_change, "vm-0"),
    ],
)
async def test_an_object_that_should_stay_and_was_changed_is_noticed(
    scenario: WatchScenario, fault: Fault, complaint: str
) -> None:
    await scenario.make("vm", finalizers=[FINALIZER])
    await assert_story(scenario, [])
    await fault(scenario)
    with pytest.raises(AssertionError, match=complaint):
        await assert_story(scenario, [])


async def test_an_object_that_should_be_released_and_is_not_is_noticed(scenario: WatchScenario) -> None:
    await scenario.make("vm", finalizers=[FINALIZER])
    with pytest.raises(AssertionError, match="these were to be released"):
        await assert_story(scenario, ["vm"])
    await _vanish(scenario)
    with pytest.raises(AssertionError, match="done"):
        await assert_story(scenario, ["vm"])
    with pytest.raises(AssertionError, match="not everything was removed exactly once"):
        await assert_story(scenario, ["vm"], recorded=[])
