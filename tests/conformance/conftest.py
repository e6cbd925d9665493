"""Fixtures of the conformance suite: a client, a namespace and two custom kinds, on every available server.
The custom kinds are created once per server, since a real one takes a second to establish each."""

import uuid
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from tests.api_servers import TestApi
from tests.conformance.api_caller import Caller, eventually
from tests.conformance.object_paths import DEFINITIONS, GROUP, Kind, definition

_installed: "WeakKeyDictionary[Any, set[str]]" = WeakKeyDictionary()


@pytest.fixture
async def kube(api: TestApi) -> AsyncIterator[Caller]:
    async with Caller(api.url, api.token, api.ca) as caller:
        yield caller


@pytest.fixture
def namespace(api: TestApi) -> str:
    return api.namespace()


@pytest.fixture
def unique() -> str:
    """A word that no other test uses."""
    return f"u{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def widgets(kube: Caller, api: TestApi) -> Kind:
    """A custom kind with a status subresource."""
    return await _once(kube, api, definition("widgets"))


@pytest.fixture
async def gadgets(kube: Caller, api: TestApi) -> Kind:
    """A custom kind without a status subresource, of cluster scope."""
    return await _once(kube, api, definition("gadgets", scope="Cluster", status=False))


async def _once(kube: Caller, api: TestApi, wanted: dict[str, Any]) -> Kind:
    done = _installed.setdefault(api.server, set())
    name = wanted["metadata"]["name"]
    if name not in done:
        await install(kube, wanted)
        done.add(name)
    return kind_of(wanted)


def kind_of(wanted: dict[str, Any], version: str = "v1") -> Kind:
    names = wanted["spec"]["names"]
    return Kind(GROUP, version, names["plural"], names["kind"])


async def install(kube: Caller, wanted: dict[str, Any]) -> None:
    """Returns when its objects can be listed."""
    await kube.made(DEFINITIONS, wanted)
    served = [version["name"] for version in wanted["spec"]["versions"] if version["served"]]
    for version in served:
        await served_at(kube, kind_of(wanted, version).path())


async def served_at(kube: Caller, path: str) -> None:
    await eventually(f"{path} is served", lambda: kube.get(path), lambda reply: reply.status == 200)
