"""Inventory records of NodeClaims that opted out: their resources stay. The watcher keeps such records only for sources
with a sweep, which would find the resources."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.contract.names import GC
from service.engine.inventory import InventoryRecord
from service.sources.karpenter_azure import KARPENTER_AZURE
from tests.api_servers import TestApi
from tests.integration.azure_removal import own_api
from tests.integration.watched_source import WatchedSource, watched_source
from tests.redis_servers import TestServer

__all__ = ["own_api"]

SWEPT: dict[str, Any] = {"mode": "observe", "collector": KARPENTER_AZURE}
OUT: dict[str, Any] = {"annotations": {GC: "disabled"}}


@pytest.fixture
async def watched(own_api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[WatchedSource]:
    crd, namespace = own_api.crd(), own_api.namespace()
    settings = embedded_server.settings()
    async with watched_source(own_api.server, own_api.kube, settings, tmp_path, crd, namespace) as made:
        yield made


async def record(watched: WatchedSource, uid: str) -> InventoryRecord:
    found = await watched.inventory.get(uid)
    assert found is not None
    return found


async def until_kept(watched: WatchedSource, uid: str, *, gone: bool = False) -> InventoryRecord:
    async def look() -> InventoryRecord | None:
        found = await watched.inventory.get(uid)
        return found if found is not None and found.kept and bool(found.gone) is gone else None

    found = await watched.until(f"{uid} is kept", look)
    assert isinstance(found, InventoryRecord)
    return found


@pytest.mark.invariant(10)
async def test_one_that_is_opted_out_is_remembered_and_never_published(watched: WatchedSource) -> None:
    uid = watched.create("out", **OUT)
    running = await watched.start(**SWEPT)
    found = await record(watched, uid)
    assert (found.name, found.gone) == ("out", 0)
    assert found.kept.startswith("out-of-scope: ")
    assert running.source.counters.owned == 0
    watched.delete("out")
    found = await until_kept(watched, uid, gone=True)
    assert found.kept.startswith("out-of-scope: ")
    assert await watched.deletions() == {}


async def test_one_that_opts_out_while_it_is_watched_is_kept_from_then_on(watched: WatchedSource) -> None:
    await watched.start(**SWEPT)
    uid = watched.create("one")
    await watched.until("it is remembered", watched.remembered)
    assert (await record(watched, uid)).kept == ""
    watched.patch("one", OUT)
    await until_kept(watched, uid)


async def test_one_that_opts_in_again_is_as_any_other(watched: WatchedSource) -> None:
    uid = watched.create("one", {"owner": "x"}, **OUT)
    await watched.start(**SWEPT)
    assert (await record(watched, uid)).kept
    watched.patch("one", {"annotations": {GC: None}})

    async def back() -> bool:
        return not (await record(watched, uid)).kept

    await watched.until("it is kept no more", back)
    watched.delete("one")
    found = (await watched.until_published("one"))["one"]
    assert (found.uid, found.data) == (uid, '{"owner":"x"}')


async def test_lists_leave_what_is_kept_alone(watched: WatchedSource) -> None:
    """Also one that went while nobody watched: it was never to be collected."""
    lives, goes = watched.create("lives", **OUT), watched.create("goes", **OUT)
    first = await watched.start(**SWEPT)
    await first.stop()
    watched.delete("goes")
    second = await watched.start(**SWEPT)
    await watched.until_listed_again(second)
    for uid in (lives, goes):
        assert (await record(watched, uid)).kept
    assert await watched.deletions() == {}


async def test_one_that_is_retained_is_collected_and_keeps_its_marks_for_the_planner(watched: WatchedSource) -> None:
    marks = {"knell.dev/deletion-policy": "retain"}
    uid = watched.create("one", annotations=marks)
    await watched.start(**SWEPT)
    assert (await record(watched, uid)).kept == ""
    watched.delete("one")
    await watched.until_published("one")
    found = await record(watched, uid)
    assert (found.annotations, bool(found.gone)) == (marks, True)


async def test_one_outside_by_a_setting_is_forgotten_for_no_mark_says_that_anything_stays(
    watched: WatchedSource,
) -> None:
    uid = watched.create("one", labels={"team": "b"})
    await watched.start(**SWEPT, opt_out="team=b")
    assert await watched.inventory.get(uid) is None


async def test_where_nothing_is_swept_an_object_that_is_opted_out_is_forgotten(watched: WatchedSource) -> None:
    uid = watched.create("out", **OUT)
    await watched.start(mode="observe", collector="none")
    assert await watched.inventory.get(uid) is None
    assert await watched.remembered() == {}
