"""When a source was first enabled is known as long as either the cluster or Redis remembers it.
Where the two disagree, a person is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.moments import Moments, field_of
from service.settings import Settings, SourceSettings, WatchSettings
from service.watching.watcher import Watcher
from tests.clusters import TestApi
from tests.engine import waiting
from tests.integration.declared import Declared, declare
from tests.integration.test_work_command import with_installation
from tests.servers import TestServer

EARLY, LATE = "2026-01-31T12:00:00Z", "2026-03-01T00:00:00Z"


@pytest.fixture
def world(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> Declared:
    return declare(api, embedded_server, tmp_path)


def settings_of(world: Declared) -> Settings:
    source = SourceSettings(
        resource=world.crd.resource, collector="none", mode="observe", namespaces=(world.namespace,)
    )  # fmt: skip
    return Settings(
        redis=world.redis,
        clusters={"here": world.api.settings(world.folder)},
        sources={"widgets": source},
        watch=WatchSettings(namespace=world.home, retry=timedelta(seconds=1)),
    )


@asynccontextmanager
async def watching(world: Declared) -> AsyncIterator[Installation]:
    """From the first complete list on."""
    settings = settings_of(world)
    installation = Installation(settings)
    watcher = Watcher(settings, installation)
    running = asyncio.ensure_future(watcher.run())
    try:
        await until("it has listed", lambda: watcher.posts[0].tally.relists >= 1)
        yield installation
    finally:
        watcher.stop()
        await running
        await installation.aclose()


async def until(what: str, holds: Callable[[], Any]) -> Any:
    return await waiting.until(what, lambda: asyncio.to_thread(holds))


def configmap(world: Declared) -> str:
    return f"/api/v1/namespaces/{world.home}/configmaps/knell-sources"


def kept(world: Declared) -> Any:
    found = world.api.kube.get(configmap(world))
    return None if found is None else found["data"]


def keep(world: Declared, moment: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}}
    world.api.kube.create(configmap(world).rpartition("/")[0], {**body, "data": {"widgets": moment}})


def uid_of(world: Declared) -> str:
    found: Any = world.api.kube.get("/api/v1/namespaces/kube-system")
    return str(found["metadata"]["uid"])


def copy(world: Declared, moment: str, uid: str = "", source: str = "widgets") -> None:
    async def write(installation: Installation) -> None:
        await Moments(installation).keep(uid or uid_of(world), source, datetime.fromisoformat(moment))

    with_installation(world.redis, write)


def copies(world: Declared) -> dict[str, str]:
    return dict(with_installation(world.redis, lambda opened: Moments(opened).every()))


async def known(installation: Installation) -> set[str]:
    return {one.name async for page in Inventory(installation, "widgets").scan() for _, one in page if one is not None}


# ---- losses


@pytest.mark.invariant(5)
async def test_an_observed_object_is_not_forgotten_when_the_configmap_is_lost(world: Declared) -> None:
    async with watching(world) as installation:
        world.create("a")
        await waiting.until("it is remembered", lambda: _is(installation, {"a"}))
    moment = kept(world)["widgets"]
    created = datetime.fromisoformat(world.get("a")["metadata"]["creationTimestamp"])
    world.api.kube.delete(configmap(world))
    # By a moment of now it would be older than its source.
    await until("another second has begun", lambda: datetime.now(UTC) >= created + timedelta(seconds=2))
    async with watching(world) as installation:
        assert await known(installation) == {"a"}
        assert kept(world) == {"widgets": moment}


async def _is(installation: Installation, names: set[str]) -> bool:
    return await known(installation) == names


@pytest.mark.invariant(5)
async def test_without_redis_the_configmap_counts_and_is_copied_again(world: Declared) -> None:
    keep(world, EARLY)
    field = field_of(uid_of(world), "widgets")
    async with watching(world) as installation:
        moments, store = Moments(installation), Inventory(installation, "widgets")
        assert await moments.every() == {field: EARLY}

        async def copied() -> bool:
            return await moments.every() == {field: EARLY}

        # As when Redis is emptied under a running watch: the next list makes the copy anew.
        await installation.caller.command("UNLINK", moments.key, store.state_key)
        await waiting.until("it is copied again", copied)
    assert kept(world) == {"widgets": EARLY}


async def test_a_source_has_a_moment_of_its_own_in_every_cluster(world: Declared) -> None:
    await asyncio.to_thread(copy, world, EARLY, "another-cluster")
    async with watching(world):
        moment = kept(world)["widgets"]
    assert moment > EARLY
    found = await asyncio.to_thread(copies, world)
    assert found == {field_of("another-cluster", "widgets"): EARLY, field_of(uid_of(world), "widgets"): moment}


# ---- what a person is told, and decides


@pytest.mark.parametrize("here", [LATE, None], ids=["edited", "deleted"])
def test_a_disagreement_is_shown(world: Declared, here: str | None) -> None:
    if here is not None:
        keep(world, here)
    copy(world, EARLY)
    config = world.config()
    listed = world.knell(config, "sources", "list")
    words = f"copy in Redis says {EARLY}"
    assert words in listed.out
    assert ("the earlier counts" if here else "the copy counts") in listed.out
    (one,) = world.knell(config, "sources", "list", "--output", "json").json["sources"]
    assert (one["enabled"]["configmap"], one["enabled"]["redis"]) == (here, EARLY)
    (finding,) = (
        one
        for one in world.knell(config, "doctor", "--output", "json").json["findings"]
        if one["check"] == "first enabling of widgets"
    )
    assert (finding["state"], words in finding["what"]) == ("warning", True)


@pytest.mark.parametrize("copied", [EARLY, None])
def test_an_agreement_needs_no_word(world: Declared, copied: str | None) -> None:
    """Nor does a copy that is not made yet."""
    keep(world, EARLY)
    if copied is not None:
        copy(world, copied)
    config = world.config()
    assert "enabl" not in world.knell(config, "sources", "list").out
    assert "first enabling" not in world.knell(config, "doctor").out


def test_uninstall_forgets_the_copies_of_its_cluster_and_no_others(world: Declared) -> None:
    keep(world, EARLY)
    copy(world, EARLY)
    copy(world, EARLY, "another-cluster")
    answer = world.knell(world.config(), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert kept(world) is None
    assert copies(world) == {field_of("another-cluster", "widgets"): EARLY}


def test_a_dropped_source_is_forgotten_with_its_copies(world: Declared) -> None:
    copy(world, EARLY, source="former")
    copy(world, EARLY)

    async def remember(installation: Installation) -> None:
        await Inventory(installation, "former").note({"resource": "x.example.org", "listed_at": 1})

    with_installation(world.redis, remember)
    assert world.knell(world.config(), "sources", "drop", "former", "--yes").code == 0
    assert copies(world) == {field_of(uid_of(world), "widgets"): EARLY}
