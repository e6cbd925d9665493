"""Kubernetes client while a real API server stops, restarts, and has compacted its history."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from service.kubernetes import CONFIGMAPS, ClusterError, Expired, KubernetesClient, Lease, Unavailable, connect
from service.settings import ClusterSettings
from standins.controlplane import ControlPlane
from tests.api_servers import need_real

pytestmark = pytest.mark.long

_SILENCE = timedelta(seconds=30)


async def _watch_until_it_breaks(cluster: KubernetesClient, version: str, begun: asyncio.Event) -> ClusterError | None:
    try:
        async with aclosing(cluster.watch(CONFIGMAPS, "default", "", version, silence=_SILENCE)) as watch:
            async for change in watch:
                if change.kind == "ADDED":
                    begun.set()
    except ClusterError as error:
        return error
    return None


async def test_a_restart_breaks_watches_and_a_compaction_expires_them(tmp_path: Path) -> None:
    need_real()
    with ControlPlane(controllers=False) as plane:
        settings = ClusterSettings(kubeconfig=plane.kubeconfig(tmp_path / "config"))
        async with await connect("own", settings) as cluster:
            identity = await cluster.identity()
            for number in range(4):
                await cluster.create(CONFIGMAPS, "default", {"metadata": {"name": f"c{number}"}})
            pages = cluster.pages(CONFIGMAPS, "default", limit=1)
            old = (await anext(pages)).resource_version
            await cluster.create(CONFIGMAPS, "default", {"metadata": {"name": "after"}})
            lease = Lease(cluster, "default", "task", "holder")
            assert await lease.try_acquire()

            begun = asyncio.Event()
            watching = asyncio.create_task(_watch_until_it_breaks(cluster, old, begun))
            await asyncio.wait_for(begun.wait(), 60)
            plane.compact()
            await asyncio.to_thread(plane.stop_apiserver)
            broke = await asyncio.wait_for(watching, 60)
            assert broke is None or isinstance(broke, Unavailable)
            with pytest.raises(Unavailable):
                await cluster.identity()
            plane.start_apiserver()

            # The same client goes on with the same server, which knows its objects and not its past.
            assert await cluster.identity() == identity
            assert await cluster.get(CONFIGMAPS, "default", "after") is not None
            with pytest.raises(Expired):
                [change async for change in cluster.watch(CONFIGMAPS, "default", "", old, silence=_SILENCE)]
            with pytest.raises(Expired):
                await anext(pages)
            await lease.release()
            names = [s.name async for p in cluster.pages(CONFIGMAPS, "default", limit=2) for s in p.items]
            assert {"c0", "c1", "c2", "c3", "after"} <= set(names)
