"""A plan may begin from what the watch side of the same process just saw; what is destroyed is asked of the object."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.contract import Event, Plan, Target
from service.contract.names import FINALIZER
from service.kubernetes import Sightings
from tests.clusters import TestApi
from tests.integration.staged import LANE, Stage, staged
from tests.integration.watched import OTHER, Watched
from tests.servers import TestServer
from workers.handlers.objects import Facts
from workers.handlers.simulated import KIND


class ByName:
    """Finds what an object owns by its name alone."""

    name = "simulated"
    metadata_only = True

    async def collect(self, facts: Facts) -> Plan:
        return Plan([Target(kind=KIND, id=f"{facts.about.name}-0", lane=LANE, data="tag")])


def unhurried() -> Sightings:
    """They stay fresh, however slow the machine is."""
    return Sightings(lambda: 0.0)


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        # What is published is planned at once; its jobs wait until a test lets them go.
        await made.stop_lanes()
        yield made


async def sight(stage: Stage, sightings: Sightings, name: str = "w") -> Event:
    """An object that is going, as the watch side shows and tells of it."""
    stage.make(name)
    event = stage.event(stage.delete(name))
    live = await stage.cluster.get(await stage.cluster.discover(stage.crd.resource), stage.namespace, name)
    assert live is not None
    sightings.note(stage.identity, stage.crd.resource, live)
    stage.front.asked.clear()
    return event


def readings(stage: Stage, name: str = "w") -> int:
    return stage.front.count("GET", f"/{stage.crd.plural}/{name}")


async def test_a_sighted_object_is_read_only_before_what_it_owns_is_destroyed(stage: Stage) -> None:
    sightings = unhurried()
    event = await sight(stage, sightings)
    await stage.work(collector=ByName(), sightings=sightings)
    await stage.publish(event)
    await stage.until_state(event, "running")
    assert readings(stage) == 0
    await stage.free_lanes()
    await stage.until_done(event)
    assert readings(stage) == 1
    assert not stage.there("w")
    assert stage.read("w") is None


async def test_what_changed_since_the_sighting_counts_before_anything_is_destroyed(stage: Stage) -> None:
    sightings = unhurried()
    event = await sight(stage, sightings)
    stage.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await stage.work(collector=ByName(), sightings=sightings)
    await stage.publish(event)
    await stage.until_state(event, "running")
    await stage.free_lanes()
    await stage.until_refused(event, "protected")
    assert stage.deletes == 0
    assert stage.there("w")


async def test_an_object_that_owns_nothing_is_let_go_only_as_it_was_sighted(stage: Stage) -> None:
    stage.source(collector="none")
    sightings = unhurried()
    event = await sight(stage, sightings)
    stage.annotate("w", **{"knell.dev/dry-run": "true"})
    await stage.work(sightings=sightings)
    await stage.publish(event)
    await stage.until_state(event, "releasing")
    await stage.free_lanes()
    await stage.until_refused(event, "dry-run")
    assert stage.read("w") is not None


async def test_a_collector_that_needs_the_text_has_the_object_read(stage: Stage) -> None:
    sightings = unhurried()
    event = await sight(stage, sightings)
    await stage.work(sightings=sightings)
    await stage.publish(event)
    await stage.until_state(event, "running")
    assert readings(stage) == 1


async def test_the_watch_side_shows_what_goes_until_it_changes(watched: Watched) -> None:
    sightings = unhurried()
    await watched.start(sightings=sightings)
    cluster, resource = await watched.cluster.identity(), watched.crd.resource
    uids = [watched.create(name) for name in ("one", "two", "three")]
    await watched.until("all are marked", lambda: all(map(watched.marked, ("one", "two", "three"))))
    for name in ("one", "two"):
        watched.delete(name)
        await watched.until_published(name)
    found = sightings.take(cluster, resource, uids[0])
    assert found is not None
    assert (found.name, found.going) == ("one", True)

    watched.patch("two", {"annotations": {"seen": "again"}})
    # What is published later was seen later.
    watched.delete("three")
    await watched.until_published("three")
    assert sightings.take(cluster, resource, uids[1]) is None
    assert sightings.take(cluster, resource, uids[2]) is not None


async def test_what_only_a_list_showed_is_not_shown(watched: Watched) -> None:
    sightings = unhurried()
    uid = watched.create("one", finalizers=[FINALIZER])
    watched.delete("one")
    await watched.start(sightings=sightings)
    await watched.until_published("one")
    assert sightings.take(await watched.cluster.identity(), watched.crd.resource, uid) is None


async def test_what_lost_our_finalizer_is_shown_no_more(watched: Watched) -> None:
    sightings = unhurried()
    await watched.start(sightings=sightings)
    cluster, resource = await watched.cluster.identity(), watched.crd.resource
    uids = [watched.create(name, finalizers=[OTHER]) for name in ("one", "two")]
    await watched.until("both are marked", lambda: watched.marked("one") and watched.marked("two"))
    watched.delete("one")
    await watched.until_published("one")
    watched.patch("one", {"finalizers": [OTHER]})
    # What is published later was seen later.
    watched.delete("two")
    await watched.until_published("two")
    assert sightings.take(cluster, resource, uids[0]) is None
    assert sightings.take(cluster, resource, uids[1]) is not None
