"""Times of first enabling, stored in the cluster and in Redis. If the two differ, the operator gets a warning."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.engine.enabled_times import EnabledTimes, field_of
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.settings import Settings, SourceSettings, WatchSettings
from service.watching.watcher import Watcher
from tests.api_servers import TestApi
from tests.engine import waiting
from tests.integration.knell_process import with_installation
from tests.integration.widget_source import WidgetSource, widget_source
from tests.redis_servers import TestServer

EARLY, LATE = "2026-01-31T12:00:00Z", "2026-03-01T00:00:00Z"


@pytest.fixture
def widgets(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> WidgetSource:
    return widget_source(api, embedded_server, tmp_path)


def settings_of(widgets: WidgetSource) -> Settings:
    source = SourceSettings(
        resource=widgets.crd.resource, collector="none", mode="observe", namespaces=(widgets.namespace,)
    )  # fmt: skip
    return Settings(
        redis=widgets.redis,
        clusters={"here": widgets.api.settings(widgets.folder)},
        sources={"widgets": source},
        watch=WatchSettings(namespace=widgets.home, retry=timedelta(seconds=1)),
    )


@asynccontextmanager
async def watching(widgets: WidgetSource) -> AsyncIterator[Installation]:
    """From the first complete list on."""
    settings = settings_of(widgets)
    installation = Installation(settings)
    watcher = Watcher(settings, installation)
    running = asyncio.ensure_future(watcher.run())
    try:
        await until("it has listed", lambda: watcher.share_leases[0].counters.relists >= 1)
        yield installation
    finally:
        watcher.stop()
        await running
        await installation.aclose()


async def until(what: str, holds: Callable[[], Any]) -> Any:
    return await waiting.until(what, lambda: asyncio.to_thread(holds))


def configmap(widgets: WidgetSource) -> str:
    return f"/api/v1/namespaces/{widgets.home}/configmaps/knell-sources"


def kept(widgets: WidgetSource) -> Any:
    found = widgets.api.kube.get(configmap(widgets))
    return None if found is None else found["data"]


def keep(widgets: WidgetSource, moment: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "knell-sources"}}
    widgets.api.kube.create(configmap(widgets).rpartition("/")[0], {**body, "data": {"widgets": moment}})


def uid_of(widgets: WidgetSource) -> str:
    found: Any = widgets.api.kube.get("/api/v1/namespaces/kube-system")
    return str(found["metadata"]["uid"])


def copy(widgets: WidgetSource, moment: str, uid: str = "", source: str = "widgets") -> None:
    async def write(installation: Installation) -> None:
        await EnabledTimes(installation).add(uid or uid_of(widgets), source, datetime.fromisoformat(moment))

    with_installation(widgets.redis, write)


def copies(widgets: WidgetSource) -> dict[str, str]:
    return dict(with_installation(widgets.redis, lambda opened: EnabledTimes(opened).all_times()))


async def known(installation: Installation) -> set[str]:
    return {one.name async for page in Inventory(installation, "widgets").scan() for _, one in page if one is not None}


# ---- losses


@pytest.mark.invariant(5)
async def test_an_observed_object_is_not_forgotten_when_the_configmap_is_lost(widgets: WidgetSource) -> None:
    async with watching(widgets) as installation:
        widgets.create("a")
        await waiting.until("it is remembered", lambda: _is(installation, {"a"}))
    moment = kept(widgets)["widgets"]
    created = datetime.fromisoformat(widgets.get("a")["metadata"]["creationTimestamp"])
    widgets.api.kube.delete(configmap(widgets))
    # By a moment of now it would be older than its source.
    await until("another second has begun", lambda: datetime.now(UTC) >= created + timedelta(seconds=2))
    async with watching(widgets) as installation:
        assert await known(installation) == {"a"}
        assert kept(widgets) == {"widgets": moment}


async def _is(installation: Installation, names: set[str]) -> bool:
    return await known(installation) == names


@pytest.mark.invariant(5)
async def test_without_redis_the_configmap_counts_and_is_copied_again(widgets: WidgetSource) -> None:
    keep(widgets, EARLY)
    field = field_of(uid_of(widgets), "widgets")
    async with watching(widgets) as installation:
        moments, store = EnabledTimes(installation), Inventory(installation, "widgets")
        assert await moments.all_times() == {field: EARLY}

        async def copied() -> bool:
            return await moments.all_times() == {field: EARLY}

        # As when Redis is emptied under a running watch: the next list makes the copy anew.
        await installation.caller.command("UNLINK", moments.key, store.state_key)
        await waiting.until("it is copied again", copied)
    assert kept(widgets) == {"widgets": EARLY}


async def test_a_source_has_a_moment_of_its_own_in_every_cluster(widgets: WidgetSource) -> None:
    await asyncio.to_thread(copy, widgets, EARLY, "another-cluster")
    async with watching(widgets):
        moment = kept(widgets)["widgets"]
    assert moment > EARLY
    found = await asyncio.to_thread(copies, widgets)
    assert found == {field_of("another-cluster", "widgets"): EARLY, field_of(uid_of(widgets), "widgets"): moment}


# ---- what an operator sees and decides


@pytest.mark.parametrize("here", [LATE, None], ids=["edited", "deleted"])
def test_a_disagreement_is_shown(widgets: WidgetSource, here: str | None) -> None:
    if here is not None:
        keep(widgets, here)
    copy(widgets, EARLY)
    config = widgets.config()
    listed = widgets.knell(config, "sources", "list")
    words = f"copy in Redis says {EARLY}"
    assert words in listed.out
    assert ("the earlier counts" if here else "the copy counts") in listed.out
    (one,) = widgets.knell(config, "sources", "list", "--output", "json").json["sources"]
    assert (one["enabled"]["configmap"], one["enabled"]["redis"]) == (here, EARLY)
    (finding,) = (
        one
        for one in widgets.knell(config, "doctor", "--output", "json").json["findings"]
        if one["check"] == "first enabling of widgets"
    )
    assert (finding["state"], words in finding["what"]) == ("warning", True)


@pytest.mark.parametrize("copied", [EARLY, None])
def test_an_agreement_needs_no_word(widgets: WidgetSource, copied: str | None) -> None:
    """Nor does a copy that is not made yet."""
    keep(widgets, EARLY)
    if copied is not None:
        copy(widgets, copied)
    config = widgets.config()
    assert "enabl" not in widgets.knell(config, "sources", "list").out
    assert "first enabling" not in widgets.knell(config, "doctor").out


def test_uninstall_forgets_the_copies_of_its_cluster_and_no_others(widgets: WidgetSource) -> None:
    keep(widgets, EARLY)
    copy(widgets, EARLY)
    copy(widgets, EARLY, "another-cluster")
    answer = widgets.knell(widgets.config(), "uninstall", "--yes")
    assert answer.code == 0, answer.err
    assert kept(widgets) is None
    assert copies(widgets) == {field_of("another-cluster", "widgets"): EARLY}


def test_a_dropped_source_is_forgotten_with_its_copies(widgets: WidgetSource) -> None:
    copy(widgets, EARLY, source="former")
    copy(widgets, EARLY)

    async def remember(installation: Installation) -> None:
        await Inventory(installation, "former").save_state({"resource": "x.example.org", "listed_at": 1})

    with_installation(widgets.redis, remember)
    assert widgets.knell(widgets.config(), "sources", "drop", "former", "--yes").code == 0
    assert copies(widgets) == {field_of(uid_of(widgets), "widgets"): EARLY}
