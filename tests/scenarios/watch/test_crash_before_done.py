"""Crashes between the removal of the finalizer and the record of it: the record is completed, and once."""

from collections.abc import Callable

import pytest
from aiohttp import web

from service.contract.names import FINALIZER
from standins.redis_servers import LocalRedis
from tests.api_servers import TestApi
from tests.recording_proxy import RecordingProxy
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import VMS
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long


class ActingProxy(RecordingProxy):
    """Does something once: as soon as the server has taken a finalizer off, and before anybody is told."""

    def __init__(self, scenario: WatchScenario) -> None:
        super().__init__(TestApi("real", scenario.server))
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


async def _caught(scenario: WatchScenario, proxy: ActingProxy) -> None:
    """Off, and not recorded."""
    assert proxy.released in scenario.made
    assert await scenario.read(proxy.released) is None
    assert not any(scenario.there(target) for target in scenario.made[proxy.released].targets)


async def test_a_crash_between_the_released_finalizer_and_done_is_made_good_once(scenario: WatchScenario) -> None:
    scenario.be_impatient()
    watch = await scenario.start(works=False)
    direct = scenario.config()
    async with ActingProxy(scenario) as proxy:
        scenario.document["clusters"]["here"]["kubeconfig"] = str(proxy.kubeconfig(scenario.folder / "front"))
        worker = scenario.launch("work", config=scenario.config("fronted"))
        proxy.then = worker.kill
        await worker.until_ready()
        vms = await scenario.many("vm", 6, targets=2)
        await scenario.ready(*vms)
        await scenario.delete(*vms[:5])

        async def killed() -> bool:
            return worker.process.process.poll() is not None

        await scenario.until("it is killed", killed)
    await _caught(scenario, proxy)
    assert (await scenario.deletions())[scenario.deletion_of(proxy.released)].state == "releasing"
    second = scenario.launch("work", config=direct)
    await second.until_ready()
    await until_released(scenario, *vms[:5])
    await second.stop()
    assert watch.share_lease(VMS).counters.withdrawn == 0
    await watch.stop()
    await assert_story(scenario, vms[:5])


async def test_a_redis_that_hangs_when_the_finalizer_is_off_learns_of_it_once(
    own_valkey_scenario: WatchScenario, valkey: LocalRedis
) -> None:
    own_valkey_scenario.be_impatient()
    async with ActingProxy(own_valkey_scenario) as proxy:
        watch = await own_valkey_scenario.start(works=False)
        own_valkey_scenario.document["clusters"]["here"]["kubeconfig"] = str(
            proxy.kubeconfig(own_valkey_scenario.folder / "front")
        )
        work = await own_valkey_scenario.start(watches=False)
        vms = await own_valkey_scenario.many("vm", 6, targets=2)
        await own_valkey_scenario.ready(*vms)
        proxy.then = valkey.freeze
        await own_valkey_scenario.delete(*vms[:5])
        assert work.worker is not None
        caller = work.worker.installation.caller
        await work.until(
            "it is off, and Redis is away", lambda: proxy.released and caller.unavailable_since is not None
        )
        await _caught(own_valkey_scenario, proxy)
        valkey.thaw()
        await until_released(own_valkey_scenario, *vms[:5])
        await work.stop()
        assert watch.share_lease(VMS).counters.withdrawn == 0
        await watch.stop()
    await assert_story(own_valkey_scenario, vms[:5])
