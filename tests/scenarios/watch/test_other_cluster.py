"""Kubeconfig context that suddenly leads to another cluster, where everything has the same name."""

from pathlib import Path
from typing import Any

import pytest

from service.contract import Event
from service.contract.names import FINALIZER
from service.settings import load
from tests.api_servers import ApiServer
from tests.scenarios.watch.admin import Admin
from tests.scenarios.watch.evidence import assert_story, until_released
from tests.scenarios.watch.objects import DISKS, VMS, finalizers, is_going
from tests.scenarios.watch.service import Service
from tests.scenarios.watch.watch_scenario import WatchScenario

pytestmark = pytest.mark.long


async def _rebuild(scenario: WatchScenario, other: Admin, name: str) -> Any:
    """The same kinds, namespaces and object over there, the object with our finalizer and on its way out."""
    for crd in scenario.crds.values():
        await other.install(crd)
    for namespace in (scenario.home, scenario.namespace):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await other.create("/api/v1/namespaces", body)
    made = scenario.made[name]
    found: Any = await scenario.read(name)
    twin = {**made.crd.body(name, finalizers=[FINALIZER]), "spec": found["spec"]}
    await other.create(made.crd.path(made.namespace), twin)
    await other.delete(made.path)
    return await other.get(made.path)


async def test_a_context_that_leads_to_another_cluster_is_refused(
    scenario: WatchScenario, embedded_api: ApiServer
) -> None:
    way = Path(scenario.document["clusters"]["here"]["kubeconfig"])
    first = await scenario.start()
    vms, disks = await scenario.many("vm", 3), await scenario.many("disk", 3, source=DISKS)
    await scenario.ready(*vms, *disks)
    await first.stop()
    await scenario.delete(vms[0], disks[0])
    async with Admin(embedded_api) as other:
        there = await _rebuild(scenario, other, vms[0])
        embedded_api.kubeconfig(way)
        astray = Service(load(scenario.config(), {}))
        scenario.services.append(astray)
        await astray.start()
        assert astray.watcher is not None
        (cluster_watch,) = astray.watcher.cluster_watches
        await astray.until("it is refused", lambda: cluster_watch.refused)
        assert f"has always had uid {scenario.cluster}" in cluster_watch.problem
        assert "knell clusters forget here" in cluster_watch.problem
        # The workers do not follow either, not even when told of an object that is really going.
        made = scenario.made[vms[0]]
        told = Event(
            cluster=scenario.cluster, resource=made.crd.resource, uid=made.uid, name=made.name,
            namespace=made.namespace,
            source=VMS,
        )  # fmt: skip
        await scenario.installation.publish([told])

        async def held() -> bool:
            view = (await scenario.deletions())[told.deletion]
            return view.state == "held" and f"has always had uid {scenario.cluster}" in view.held_why

        await scenario.until("it is held", held)
        await astray.stop()
        # Over there nothing was touched, nor made.
        assert await other.get(made.path) == there
        assert is_going(there)
        assert finalizers(there) == [FINALIZER]
        assert await other.items(f"/apis/coordination.k8s.io/v1/namespaces/{scenario.home}/leases") == []
        assert scenario.calls() == []
        for crd in scenario.crds.values():
            await other.request("PATCH", made.path, {"metadata": {"finalizers": None}}, patch="merge")
            await other.delete(crd.own_path)
    # Led back, it goes on where it was.
    scenario.kubeconfig(name=way.name)
    again = await scenario.start()
    await until_released(scenario, vms[0], disks[0])
    await again.stop()
    await assert_story(scenario, [vms[0], disks[0]])
