"""Composition root: which collectors are opened, each provider once, and what they are given. The two collectors and
the provider of this test are in this file, which is also the module that their declarations name."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from service.engine.installation import Installation
from service.engine.kept_store import KeptStore
from service.settings import Settings, SourceSettings
from service.sources.declaration import Source
from service.sources.registry import register
from workers.app import COMMAND_PATIENCE, App, open_app
from workers.handlers.collector import EmptyCollector
from workers.handlers.components import Components, Context
from workers.handlers.kept_resources import NoKeptRecords

HERE = "tests.unit.test_app"
log: list[str] = []


class FakeProvider:
    name = "fake"
    handlers = ()
    retained_tags: Any = "the tags of fake"


@asynccontextmanager
async def fake_provider(_context: Context) -> AsyncIterator[FakeProvider]:
    log.append("provider opens")
    try:
        yield FakeProvider()
    finally:
        log.append("provider closes")


@asynccontextmanager
async def components(context: Context) -> AsyncIterator[Components]:
    await context.provider(fake_provider)
    log.append("collector opens")
    try:
        yield Components(collector=EmptyCollector("fake"))
    finally:
        log.append("collector closes")


@pytest.fixture(autouse=True)
def sources() -> Iterator[None]:
    log.clear()
    with ExitStack() as stack:
        stack.enter_context(register(Source(name="one", components=HERE)))
        stack.enter_context(register(Source(name="other", components=HERE)))
        stack.enter_context(register(Source(name="empty")))
        stack.enter_context(register(Source(name="swept", components=HERE, modes=("observe",), swept=True)))
        yield


def settings(*collectors: str) -> Settings:
    made = {name: SourceSettings(resource=f"{name}.knell.test", collector=name) for name in collectors}
    return Settings(sources=made)


@asynccontextmanager
async def opened(settings: Settings, **how: Any) -> AsyncIterator[App]:
    installation = Installation(settings)
    try:
        async with open_app(settings, {}, installation, **how) as app:
            yield app
    finally:
        await installation.aclose()


async def test_the_collectors_of_the_sources_are_opened_and_a_provider_once_for_all_of_them() -> None:
    async with opened(settings("one", "other")) as app:
        assert list(app.components) == ["one", "other"]
        tags: dict[str, Any] = {**app.retained_tags}
        assert tags == {"fake": "the tags of fake"}
    assert log == [
        "provider opens",
        "collector opens",
        "collector opens",
        "collector closes",
        "collector closes",
        "provider closes",
    ]


async def test_only_the_named_collectors_are_opened_also_without_a_source() -> None:
    async with opened(settings("one"), collectors=["other"]) as app:
        assert list(app.components) == ["other"]


async def test_a_source_that_collects_nothing_has_an_empty_collector_and_an_unknown_one_has_none() -> None:
    async with opened(settings("empty", "unknown")) as app:
        assert [collector.name for collector in app.collectors] == ["empty"]
        assert app.handlers == []
        assert app.exists_check("unknown") is None
    assert log == []


async def test_what_is_only_shown_is_not_counted() -> None:
    async with opened(settings("one")) as app:
        assert app.budgets is not None
        assert app.guard_check is not None
        assert isinstance(app.kept_records, KeptStore)
        assert app.patience is None
    async with opened(settings("one"), counted=False) as app:
        assert (app.budgets, app.guard_check, app.patience) == (None, None, COMMAND_PATIENCE)
        assert isinstance(app.kept_records, NoKeptRecords)


async def test_a_swept_source_without_a_finder_of_orphans_is_a_mistake_that_is_seen_at_once() -> None:
    with pytest.raises(TypeError, match="source swept: `swept` of its declaration and `orphans`"):
        async with opened(settings("swept")):
            pass
    assert log[-1] == "provider closes"


async def test_a_source_that_is_not_swept_has_no_finder() -> None:
    async with opened(settings("one")) as app:
        with pytest.raises(LookupError, match="source one is not swept"):
            app.orphan_finder("one")
