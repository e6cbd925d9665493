"""etcd forgets the past while objects vanish unseen: what the watch can't tell any more is found by listing."""

import pytest

from service.engine.inventory import Inventory
from tests.kube import Answer
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS
from tests.scenarios.watch.relay import Relay
from tests.scenarios.watch.world import World, control_plane

pytestmark = pytest.mark.long


async def test_what_vanishes_before_a_410_is_found_by_the_list(fragile: World) -> None:
    plane = control_plane(fragile.server)
    # Longer than the server is away: who lost its Lease would list everything anyway.
    fragile.document["watch"]["lease"] = "2m"
    async with Relay(fragile.server.url) as relay:
        fragile.document["clusters"]["here"]["kubeconfig"] = str(fragile.kubeconfig(relay.url, "relayed"))
        service = await fragile.start()
        vms, disks = await fragile.many("vm", 12), await fragile.many("disk", 12, source=DISKS)
        await fragile.ready(*vms, *disks)
        lists = {source: service.post(source).tally.relists for source in (VMS, DISKS)}
        relay.block()
        # The service still believes that it watches.
        await fragile.delete(*vms[:8], *disks[:8])
        assert (await fragile.live()).keys().isdisjoint(disks[:8])
        plane.compact()
        await plane.revive_apiserver()
        for source in (VMS, DISKS):
            assert await _expired(fragile, source), "the server still knows what the watch was to resume from"
        relay.free()
        await until_released(fragile, *vms[:8], *disks[:8])

        def listed_again() -> dict[str, int]:
            return {source: service.post(source).tally.relists - lists[source] for source in (VMS, DISKS)}

        await service.until("both are listed again", lambda: min(listed_again().values()) > 0)
        assert set(listed_again().values()) == {1}
        await service.stop()
    await assert_story(fragile, [*vms[:8], *disks[:8]])


async def _expired(world: World, source: str) -> bool:
    """Whether a watch from where this source's stands is answered with 410, as a status or as its first event."""
    facts = await Inventory(world.installation, source).facts()
    version = facts[f"resource_version@{world.namespace}"]
    path = f"{world.crds[source].path(world.namespace)}?watch=1&timeoutSeconds=1&resourceVersion={version}"

    async def served() -> Answer | None:
        # A server that has just started does not know its kinds yet.
        answer = await world.admin.request("GET", path)
        return answer if answer.status in (200, 410) else None

    answer = await world.until("the kind is served again", served)
    return bool(answer.status == 410 or answer.body["object"].get("code") == 410)


async def test_what_vanishes_while_no_service_runs_is_found_when_it_starts_again(fragile: World) -> None:
    plane = control_plane(fragile.server)
    service = await fragile.start()
    vms, disks = await fragile.many("vm", 6), await fragile.many("disk", 6, source=DISKS)
    await fragile.ready(*vms, *disks)
    await service.stop()
    await fragile.delete(*vms[:4], *disks[:4])
    # One that comes and goes unseen is nobody's: it was never remembered, nor held back.
    await fragile.make("unseen", source=DISKS)
    await fragile.delete("unseen")
    plane.compact()
    await plane.revive_apiserver()
    again = await fragile.start()
    await until_released(fragile, *vms[:4], *disks[:4])
    await again.stop()
    await assert_story(fragile, [*vms[:4], *disks[:4]], left=["unseen"])
