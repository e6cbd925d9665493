"""Compaction and restarts: what a server forgets and what it keeps. Each test interrupts a server of its own.
410 is the only correct response about a version that was compacted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import aiohttp
import pytest

from standins.controlplane import ControlPlane
from standins.kubernetes_api import EmbeddedApi
from tests.api_servers import each_kind
from tests.conformance.api_caller import Caller, eventually
from tests.conformance.conftest import install, kind_of
from tests.conformance.object_paths import NAMESPACES, Kind, definition

pytestmark = pytest.mark.long

_SHORT = timedelta(seconds=20)


@pytest.fixture(scope="module", params=each_kind())
def own(request: pytest.FixtureRequest) -> "Iterator[ControlPlane | EmbeddedApi]":
    """A server that tests of this file may interrupt, one after the other."""
    server: ControlPlane | EmbeddedApi = ControlPlane() if request.param == "real" else EmbeddedApi()
    with server:
        yield server


@pytest.fixture
async def caller(own: "ControlPlane | EmbeddedApi") -> AsyncIterator[Caller]:
    async with Caller(own.url, own.token, own.ca) as caller:
        yield caller


@pytest.fixture
async def things(caller: Caller) -> Kind:
    wanted = definition("things", scope="Cluster")
    kind = kind_of(wanted)
    if (await caller.get(kind.path())).status != 200:
        await install(caller, wanted)
    return kind


async def test_a_server_that_comes_back_has_kept_everything(
    own: "ControlPlane | EmbeddedApi", caller: Caller, things: Kind, unique: str
) -> None:
    identity = (await caller.get(f"{NAMESPACES}/kube-system")).meta["uid"]
    made = await caller.made(things.path(), things.body(unique))
    async with caller.watch(things.path(), resourceVersion=made["metadata"]["resourceVersion"]) as stream:
        await asyncio.to_thread(own.stop_apiserver)
        # Cut off in the middle or closed in order: both end the watch.
        with contextlib.suppress(aiohttp.ClientError):
            assert await stream.rest(_SHORT) == []
        with pytest.raises(aiohttp.ClientConnectionError):
            await caller.get(things.path())
    # A process lives as long as the thread that starts it: this one.
    await own.revive_apiserver()
    assert (await caller.get(things.path(name=unique))).body == made
    assert (await caller.get(f"{NAMESPACES}/kube-system")).meta["uid"] == identity
    later = await caller.made(things.path(), things.body(f"{unique}-later"))
    assert int(later["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_compacted_past_is_gone_for_watches_and_pages(
    own: "ControlPlane | EmbeddedApi", caller: Caller, things: Kind, unique: str
) -> None:
    for number in range(5):
        await caller.made(things.path(), things.body(f"{unique}-{number}"))
    page = await caller.get(things.path(), limit=2)
    old = page.meta["resourceVersion"]
    await caller.made(things.path(), things.body(f"{unique}-later"))
    own.compact()
    await own.revive_apiserver()

    # A real server that has just come back refuses watches with 429 until its caches are filled.
    reply = await eventually(
        "watches are served",
        lambda: caller.get(things.path(), watch="true", resourceVersion=old, timeoutSeconds=5),
        lambda reply: reply.status != 429,
    )
    assert reply.status == 200
    event = reply.body
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")

    reply = await caller.get(things.path(), limit=2, **{"continue": page.meta["continue"]})
    assert (reply.status, reply.reason) == (410, "Expired")
    assert "The provided continue parameter is too old" in reply.body["message"]

    fresh = await caller.get(things.path())
    assert fresh.status == 200
    assert f"{unique}-later" in fresh.text
    async with caller.watch(things.path(), resourceVersion=fresh.meta["resourceVersion"]) as stream:
        made = await caller.made(things.path(), things.body(f"{unique}-last"))
        assert (await stream.next(_SHORT))["object"]["metadata"]["uid"] == made["metadata"]["uid"]
