"""A plan may begin from an object that the watch side of the same process just saw; before a deletion it is read
again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.contract import Event, Plan, Target
from service.contract.names import FINALIZER
from service.kubernetes import RecentObjects
from tests.api_servers import TestApi
from tests.integration.judged_source import LANE, JudgedSource, judged_source
from tests.integration.watched_source import OTHER, WatchedSource
from tests.redis_servers import TestServer
from tests.simulated.collector import NAME
from workers.handlers.collector import ObjectFacts


class CollectorByName:
    """Finds what an object owns by its name alone."""

    name = NAME
    metadata_only = True

    async def collect(self, facts: ObjectFacts) -> Plan:
        return Plan([Target(kind=NAME, id=f"{facts.ref.name}-0", lane=LANE, data="tag")])


def unhurried() -> RecentObjects:
    """They stay fresh, however slow the machine is."""
    return RecentObjects(lambda: 0.0)


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        # What is published is planned at once; its jobs wait until a test lets them go.
        await made.stop_lanes()
        yield made


async def sight(judged: JudgedSource, recent_objects: RecentObjects, name: str = "w") -> Event:
    """An object that is going, as the watch side shows and tells of it."""
    judged.make(name)
    event = judged.event(judged.delete(name))
    live = await judged.cluster.get(await judged.cluster.discover(judged.crd.resource), judged.namespace, name)
    assert live is not None
    recent_objects.note(judged.identity, judged.crd.resource, live)
    judged.proxy.asked.clear()
    return event


def readings(judged: JudgedSource, name: str = "w") -> int:
    return judged.proxy.count("GET", f"/{judged.crd.plural}/{name}")


async def test_a_recent_object_is_read_only_before_its_resources_are_deleted(judged: JudgedSource) -> None:
    recent_objects = unhurried()
    event = await sight(judged, recent_objects)
    await judged.work(collector=CollectorByName(), recent_objects=recent_objects)
    await judged.publish(event)
    await judged.until_state(event, "running")
    assert readings(judged) == 0
    await judged.free_lanes()
    await judged.until_done(event)
    assert readings(judged) == 1
    assert not judged.there("w")
    assert judged.read("w") is None


async def test_changes_since_the_object_was_seen_count_before_anything_is_deleted(judged: JudgedSource) -> None:
    recent_objects = unhurried()
    event = await sight(judged, recent_objects)
    judged.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await judged.work(collector=CollectorByName(), recent_objects=recent_objects)
    await judged.publish(event)
    await judged.until_state(event, "running")
    await judged.free_lanes()
    await judged.until_refused(event, "protected")
    assert judged.deletes == 0
    assert judged.there("w")


async def test_an_object_that_owns_nothing_is_released_only_in_the_state_that_was_seen(judged: JudgedSource) -> None:
    judged.source(collector="none")
    recent_objects = unhurried()
    event = await sight(judged, recent_objects)
    judged.annotate("w", **{"knell.dev/dry-run": "true"})
    await judged.work(recent_objects=recent_objects)
    await judged.publish(event)
    await judged.until_state(event, "releasing")
    await judged.free_lanes()
    await judged.until_refused(event, "dry-run")
    assert judged.read("w") is not None


async def test_a_collector_that_needs_the_text_has_the_object_read(judged: JudgedSource) -> None:
    recent_objects = unhurried()
    event = await sight(judged, recent_objects)
    await judged.work(recent_objects=recent_objects)
    await judged.publish(event)
    await judged.until_state(event, "running")
    assert readings(judged) == 1


async def test_the_watch_side_shows_what_goes_until_it_changes(watched: WatchedSource) -> None:
    recent_objects = unhurried()
    await watched.start(recent_objects=recent_objects)
    cluster, resource = await watched.cluster.identity(), watched.crd.resource
    uids = [watched.create(name) for name in ("one", "two", "three")]
    await watched.until("all are marked", lambda: all(map(watched.marked, ("one", "two", "three"))))
    for name in ("one", "two"):
        watched.delete(name)
        await watched.until_published(name)
    found = recent_objects.take(cluster, resource, uids[0])
    assert found is not None
    assert (found.name, found.going) == ("one", True)

    watched.patch("two", {"annotations": {"seen": "again"}})
    # What is published later was seen later.
    watched.delete("three")
    await watched.until_published("three")
    assert recent_objects.take(cluster, resource, uids[1]) is None
    assert recent_objects.take(cluster, resource, uids[2]) is not None


async def test_what_only_a_list_showed_is_not_shown(watched: WatchedSource) -> None:
    recent_objects = unhurried()
    uid = watched.create("one", finalizers=[FINALIZER])
    watched.delete("one")
    await watched.start(recent_objects=recent_objects)
    await watched.until_published("one")
    assert recent_objects.take(await watched.cluster.identity(), watched.crd.resource, uid) is None


async def test_what_lost_our_finalizer_is_shown_no_more(watched: WatchedSource) -> None:
    recent_objects = unhurried()
    await watched.start(recent_objects=recent_objects)
    cluster, resource = await watched.cluster.identity(), watched.crd.resource
    uids = [watched.create(name, finalizers=[OTHER]) for name in ("one", "two")]
    await watched.until("both are marked", lambda: watched.marked("one") and watched.marked("two"))
    watched.delete("one")
    await watched.until_published("one")
    watched.patch("one", {"finalizers": [OTHER]})
    # What is published later was seen later.
    watched.delete("two")
    await watched.until_published("two")
    assert recent_objects.take(cluster, resource, uids[0]) is None
    assert recent_objects.take(cluster, resource, uids[1]) is not None
