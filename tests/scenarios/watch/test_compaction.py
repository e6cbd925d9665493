"""Compacted etcd while objects vanish unseen: what the watch can't show any more is found by listing."""

import pytest

from service.engine.inventory import Inventory
from tests.kube import KubeResponse
from tests.scenarios.watch.blockable_relay import BlockableRelay
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.watch_scenario import WatchScenario, control_plane

pytestmark = pytest.mark.long


async def test_what_vanishes_before_a_410_is_found_by_the_list(own_plane_scenario: WatchScenario) -> None:
    plane = control_plane(own_plane_scenario.server)
    # Longer than the server is away: who lost its Lease would list everything anyway.
    own_plane_scenario.document["watch"]["lease"] = "2m"
    async with BlockableRelay(own_plane_scenario.server.url) as relay:
        own_plane_scenario.document["clusters"]["here"]["kubeconfig"] = str(
            own_plane_scenario.kubeconfig(relay.url, "relayed")
        )
        service = await own_plane_scenario.start()
        vms, disks = await own_plane_scenario.many("vm", 12), await own_plane_scenario.many("disk", 12, source=DISKS)
        await own_plane_scenario.ready(*vms, *disks)
        lists = {source: service.share_lease(source).counters.relists for source in (VMS, DISKS)}
        relay.block()
        # The service still believes that it watches.
        await own_plane_scenario.delete(*vms[:8], *disks[:8])
        assert (await own_plane_scenario.live()).keys().isdisjoint(disks[:8])
        plane.compact()
        await plane.revive_apiserver()
        for source in (VMS, DISKS):
            assert await _expired(own_plane_scenario, source), (
                "the server still knows what the watch was to resume from"
            )
        relay.free()
        await until_released(own_plane_scenario, *vms[:8], *disks[:8])

        def listed_again() -> dict[str, int]:
            return {source: service.share_lease(source).counters.relists - lists[source] for source in (VMS, DISKS)}

        await service.until("both are listed again", lambda: min(listed_again().values()) > 0)
        assert set(listed_again().values()) == {1}
        await service.stop()
    await assert_story(own_plane_scenario, [*vms[:8], *disks[:8]])


async def _expired(scenario: WatchScenario, source: str) -> bool:
    """Whether a watch from where this source's stands is answered with 410, as a status or as its first event."""
    facts = await Inventory(scenario.installation, source).state()
    version = facts[f"resource_version@{scenario.namespace}"]
    path = f"{scenario.crds[source].path(scenario.namespace)}?watch=1&timeoutSeconds=1&resourceVersion={version}"

    async def served() -> KubeResponse | None:
        # A server that has just started does not know its kinds yet.
        answer = await scenario.admin.request("GET", path)
        return answer if answer.status in (200, 410) else None

    answer = await scenario.until("the kind is served again", served)
    return bool(answer.status == 410 or answer.body["object"].get("code") == 410)


async def test_what_vanishes_while_no_service_runs_is_found_when_it_starts_again(
    own_plane_scenario: WatchScenario,
) -> None:
    plane = control_plane(own_plane_scenario.server)
    service = await own_plane_scenario.start()
    vms, disks = await own_plane_scenario.many("vm", 6), await own_plane_scenario.many("disk", 6, source=DISKS)
    await own_plane_scenario.ready(*vms, *disks)
    await service.stop()
    await own_plane_scenario.delete(*vms[:4], *disks[:4])
    # One that comes and goes unseen is nobody's: it was never remembered, nor held back.
    await own_plane_scenario.make("unseen", source=DISKS)
    await own_plane_scenario.delete("unseen")
    plane.compact()
    await plane.revive_apiserver()
    again = await own_plane_scenario.start()
    await until_released(own_plane_scenario, *vms[:4], *disks[:4])
    await again.stop()
    await assert_story(own_plane_scenario, [*vms[:4], *disks[:4]], left=["unseen"])
