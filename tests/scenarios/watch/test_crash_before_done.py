"""Between the finalizer that is off and the record that says so anything may happen: it is made good, and once."""

from collections.abc import Callable

import pytest
from aiohttp import web

from service.contract.names import FINALIZER
from standins.servers import Server
from tests.clusters import TestApi
from tests.integration.front import Front
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long


class Deadly(Front):
    """Does something once: as soon as the server has taken a finalizer off, and before anybody is told."""

    def __init__(self, world: World) -> None:
        super().__init__(TestApi("real", world.server))
        self.then: Callable[[], None] | None = None
        self.released = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        answer = await super().answer(request)
        takes_off = request.method == "PATCH" and b'"finalizers"' in body and FINALIZER.encode() not in body
        if self.then is not None and takes_off and answer.status == 200:
            self.released = request.path.rpartition("/")[2]
            then, self.then = self.then, None
            then()
        return answer


async def _caught(world: World, front: Deadly) -> None:
    """Off, and not recorded."""
    assert front.released in world.made
    assert await world.read(front.released) is None
    assert not any(world.there(target) for target in world.made[front.released].targets)


async def test_a_crash_between_the_released_finalizer_and_done_is_made_good_once(world: World) -> None:
    world.be_impatient()
    watch = await world.start(works=False)
    direct = world.config()
    async with Deadly(world) as front:
        world.document["clusters"]["here"]["kubeconfig"] = str(front.kubeconfig(world.folder / "front"))
        worker = world.launch("work", "--simulate", world.provider.address, config=world.config("fronted"))
        front.then = worker.kill
        await worker.until_ready()
        vms = await world.many("vm", 6, targets=2)
        await world.ready(*vms)
        await world.delete(*vms[:5])

        async def killed() -> bool:
            return worker.process.process.poll() is not None

        await world.until("it is killed", killed)
    await _caught(world, front)
    assert (await world.deletions())[world.deletion_of(front.released)].state == "releasing"
    second = world.launch("work", "--simulate", world.provider.address, config=direct)
    await second.until_ready()
    await until_released(world, *vms[:5])
    await second.stop()
    assert watch.post(VMS).tally.withdrawn == 0
    await watch.stop()
    await assert_story(world, vms[:5])


async def test_a_redis_that_hangs_when_the_finalizer_is_off_learns_of_it_once(forgetful: World, valkey: Server) -> None:
    forgetful.be_impatient()
    async with Deadly(forgetful) as front:
        watch = await forgetful.start(works=False)
        forgetful.document["clusters"]["here"]["kubeconfig"] = str(front.kubeconfig(forgetful.folder / "front"))
        work = await forgetful.start(watches=False)
        vms = await forgetful.many("vm", 6, targets=2)
        await forgetful.ready(*vms)
        front.then = valkey.freeze
        await forgetful.delete(*vms[:5])
        assert work.worker is not None
        caller = work.worker.installation.caller
        await work.until("it is off, and Redis is away", lambda: front.released and caller.away_since is not None)
        await _caught(forgetful, front)
        valkey.thaw()
        await until_released(forgetful, *vms[:5])
        await work.stop()
        assert watch.post(VMS).tally.withdrawn == 0
        await watch.stop()
    await assert_story(forgetful, vms[:5])
