"""The context of the kubeconfig leads to another cluster all of a sudden, where everything has the same name."""

from pathlib import Path
from typing import Any

import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from service.settings import load
from tests.clusters import ApiServer
from tests.scenarios.watch.admin import Admin
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS, finalizers, is_going
from tests.scenarios.watch.service import Service
from tests.scenarios.watch.world import World

pytestmark = pytest.mark.long


async def _rebuild(world: World, other: Admin, name: str) -> Any:
    """The same kinds, namespaces and object over there, the object with our finalizer and on its way out."""
    for crd in world.crds.values():
        await other.install(crd)
    for namespace in (world.home, world.namespace):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await other.create("/api/v1/namespaces", body)
    made = world.made[name]
    found: Any = await world.read(name)
    twin = {**made.crd.body(name, finalizers=[FINALIZER]), "spec": found["spec"]}
    await other.create(made.crd.path(made.namespace), twin)
    await other.delete(made.path)
    return await other.get(made.path)


async def test_a_context_that_leads_to_another_cluster_is_refused(world: World, embedded_api: ApiServer) -> None:
    way = Path(world.document["clusters"]["here"]["kubeconfig"])
    first = await world.start()
    vms, disks = await world.many("vm", 3), await world.many("disk", 3, source=DISKS)
    await world.ready(*vms, *disks)
    await first.stop()
    await world.delete(vms[0], disks[0])
    async with Admin(embedded_api) as other:
        there = await _rebuild(world, other, vms[0])
        embedded_api.kubeconfig(way)
        astray = Service(load(world.config(), {}), world.provider.address)
        world.services.append(astray)
        await astray.start()
        assert astray.watcher is not None
        (site,) = astray.watcher.sites
        await astray.until("it is refused", lambda: site.refused)
        assert f"has always had uid {world.cluster}" in site.trouble
        assert "knell clusters forget here" in site.trouble
        # The workers do not follow either, not even when told of an object that is really going.
        made = world.made[vms[0]]
        told = Event(
            cluster=world.cluster, resource=made.crd.resource, uid=made.uid, name=made.name, namespace=made.namespace,
            source=VMS,
        )  # fmt: skip
        await world.installation.publish([told])

        async def held() -> bool:
            view = (await world.deletions())[told.deletion]
            return view.state == "held" and f"has always had uid {world.cluster}" in view.held_why

        await world.until("it is held", held)
        await astray.stop()
        # Over there nothing was touched, nor made.
        assert await other.get(made.path) == there
        assert is_going(there)
        assert finalizers(there) == [FINALIZER]
        assert await other.items(f"/apis/coordination.k8s.io/v1/namespaces/{world.home}/leases") == []
        assert world.calls() == []
        for crd in world.crds.values():
            await other.request("PATCH", made.path, {"metadata": {"finalizers": None}}, patch="merge")
            await other.delete(crd.own_path)
    # Led back, it goes on where it was.
    world.kubeconfig(name=way.name)
    again = await world.start()
    await until_released(world, vms[0], disks[0])
    await again.stop()
    await assert_story(world, [vms[0], disks[0]])
