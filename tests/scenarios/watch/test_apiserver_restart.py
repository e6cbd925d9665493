"""The API server goes away and comes back in the middle of a burst of deletions."""

import asyncio

import aiohttp
import pytest

from tests.scenarios.watch.admin import each
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.world import World, control_plane

pytestmark = pytest.mark.long

GOING = 200
STAYING = 10
BEFORE = 40
"""Deletions that are done when the server goes."""


async def test_an_apiserver_restart_during_a_burst_loses_and_doubles_nothing(fragile: World) -> None:
    plane = control_plane(fragile.server)
    service = await fragile.start()
    going = await fragile.many("vm", GOING)
    staying = await fragile.many("stays", STAYING)
    disks = await fragile.many("disk", 20, source="disks")
    await fragile.ready(*going, *staying, *disks)

    restarting, last = asyncio.Event(), {*going[GOING // 2 :], *disks}

    async def insist(name: str) -> None:
        """As a person would: what was refused or lost on the way is asked for again."""
        if name in last:
            await restarting.wait()
        while True:
            try:
                answer = await fragile.admin.request("DELETE", fragile.made[name].path)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            if answer.status in (200, 202, 404):
                return

    async with asyncio.TaskGroup() as group:
        # Few at a time: some go before the restart, the last ones meanwhile and after it.
        group.create_task(each(insist, [*going, *disks], at_once=2))
        await fragile.until("some are done", lambda: _many_done(fragile))
        assert len(await fragile.live()) > STAYING
        restarting.set()
        await plane.revive_apiserver()
    await until_released(fragile, *going, *disks)
    assert service.post("vms").tally.marked == GOING + STAYING
    await service.stop()
    await assert_story(fragile, [*going, *disks])


async def _many_done(world: World) -> bool:
    return len(await world.done()) >= BEFORE
