"""API server that stops and restarts during a burst of deletions."""

import asyncio

import aiohttp
import pytest

from tests.scenarios.watch.admin import each
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.watch_scenario import WatchScenario, control_plane

pytestmark = pytest.mark.long

GOING = 200
STAYING = 10
BEFORE = 40
"""Deletions that are done when the server goes."""


async def test_an_apiserver_restart_during_a_burst_loses_and_doubles_nothing(own_plane_scenario: WatchScenario) -> None:
    plane = control_plane(own_plane_scenario.server)
    service = await own_plane_scenario.start()
    going = await own_plane_scenario.many("vm", GOING)
    staying = await own_plane_scenario.many("stays", STAYING)
    disks = await own_plane_scenario.many("disk", 20, source="disks")
    await own_plane_scenario.ready(*going, *staying, *disks)

    restarting, last = asyncio.Event(), {*going[GOING // 2 :], *disks}

    async def insist(name: str) -> None:
        """As a person would: what was refused or lost on the way is asked for again."""
        if name in last:
            await restarting.wait()
        while True:
            try:
                answer = await own_plane_scenario.admin.request("DELETE", own_plane_scenario.made[name].path)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            if answer.status in (200, 202, 404):
                return

    async with asyncio.TaskGroup() as group:
        # Few at a time: some go before the restart, the last ones meanwhile and after it.
        group.create_task(each(insist, [*going, *disks], at_once=2))
        await own_plane_scenario.until("some are done", lambda: _many_done(own_plane_scenario))
        assert len(await own_plane_scenario.live()) > STAYING
        restarting.set()
        await plane.revive_apiserver()
    await until_released(own_plane_scenario, *going, *disks)
    assert service.share_lease("vms").counters.marked == GOING + STAYING
    await service.stop()
    await assert_story(own_plane_scenario, [*going, *disks])


async def _many_done(scenario: WatchScenario) -> bool:
    return len(await scenario.done()) >= BEFORE
