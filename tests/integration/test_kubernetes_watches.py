"""Watches on a real API server: what comes, how it ends, and that nothing is left behind when it is left early."""

import asyncio
from contextlib import aclosing
from datetime import timedelta

import msgspec
import pytest

from service.kubernetes import KubernetesClient, ServedResource, WatchEvent, WatchStalled
from tests.api_servers import TestApi
from tests.kube import Crd

_SILENCE = timedelta(seconds=30)


async def _now(cluster: KubernetesClient, served: ServedResource, namespace: str) -> str:
    return [page.resource_version async for page in cluster.pages(served, namespace, limit=1)][-1]


async def _take(
    cluster: KubernetesClient, served: ServedResource, namespace: str, version: str, count: int
) -> list[WatchEvent]:
    taken: list[WatchEvent] = []
    async with asyncio.timeout(60), aclosing(cluster.watch(served, namespace, "", version, silence=_SILENCE)) as watch:
        async for change in watch:
            if change.kind != "BOOKMARK":
                taken.append(change)
            if len(taken) == count:
                break
    return taken


def _body(crd: Crd, name: str, size: int) -> dict[str, object]:
    return {**crd.body(name), "spec": {"filler": "x" * size}}


async def test_a_watch_tells_what_happened_since_the_list(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    made = api.kube.create(crd.path(namespace), crd.body("one", finalizers=["knell.test/held"]))
    api.kube.patch(crd.path(namespace, "one"), {"metadata": {"labels": {"team": "x"}}})
    api.kube.delete(crd.path(namespace, "one"))
    api.kube.patch(crd.path(namespace, "one"), {"metadata": {"finalizers": []}})
    changes = await _take(cluster, served, namespace, version, 4)
    assert [change.kind for change in changes] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {change.seen.uid for change in changes if change.seen} == {made["metadata"]["uid"]}
    labelled, going = changes[1].seen, changes[2].seen
    assert labelled is not None
    assert going is not None
    assert (labelled.labels, labelled.going, going.going) == ({"team": "x"}, False, True)
    versions = [int(change.resource_version) for change in changes]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


async def test_a_watch_goes_on_from_where_another_ended(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    for name in ("a", "b", "c"):
        api.kube.create(crd.path(namespace), crd.body(name))
    (first,) = await _take(cluster, served, namespace, version, 1)
    rest = await _take(cluster, served, namespace, first.resource_version, 2)
    assert [change.seen.name for change in (first, *rest) if change.seen] == ["a", "b", "c"]


async def test_lines_longer_than_a_megabyte_arrive_whole(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    sizes = {"small": 10, "large": 1_400_000, "larger": 1_450_000, "tail": 10}
    for name, size in sizes.items():
        api.kube.create(crd.path(namespace), _body(crd, name, size))
    changes = await _take(cluster, served, namespace, version, 4)
    found = {
        change.seen.name: len(msgspec.json.decode(change.seen.raw)["spec"]["filler"])
        for change in changes
        if change.seen
    }
    assert found == sizes


async def test_metadata_alone_can_be_watched(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    api.kube.create(crd.path(namespace), _body(crd, "large", 100_000))
    async with (
        aclosing(cluster.watch(served, namespace, "", version, silence=_SILENCE, metadata_only=True)) as watch,
        asyncio.timeout(60),
    ):
        change = await anext(watch)
    assert change.seen is not None
    assert change.seen.name == "large"
    assert len(bytes(change.seen.raw)) < 5_000


async def test_a_watch_on_which_nothing_comes_is_silent(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    watch = cluster.watch(served, namespace, "", version, silence=timedelta(seconds=1))
    async with asyncio.timeout(60):
        with pytest.raises(WatchStalled):
            [change async for change in watch if change.kind != "BOOKMARK"]


async def test_a_cancelled_watch_leaves_nothing_behind(api: TestApi, cluster: KubernetesClient) -> None:
    crd, namespace = api.crd(), api.namespace()
    served = await cluster.discover(crd.resource)
    version = await _now(cluster, served, namespace)
    api.kube.create(crd.path(namespace), crd.body("one"))
    begun = asyncio.Event()

    async def follow() -> None:
        async for _ in cluster.watch(served, namespace, "", version, silence=_SILENCE):
            begun.set()

    task = asyncio.create_task(follow())
    async with asyncio.timeout(60):
        await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await cluster.identity()
