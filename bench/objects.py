"""Objects of the bench on the API server: define, create, count and delete, the same for every contender.

Plain HTTP calls on a session that the caller opens; nothing of the systems that are measured is used."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp

from tests.kube import Crd

T = TypeVar("T")

GROUP: Final = "bench.knell.dev"
VERSION: Final = "v1"
THINGS: Final = "things"
"""Objects that are held back by a finalizer and deleted."""
WATCHED: Final = "records"
"""Objects that are only looked at: many, and never changed but for one."""
SMALL: Final = 600
"""Bytes of text in each watched object; with what the server adds it is about a kilobyte."""
USUAL: Final = 3000
"""Bytes of text in each object that is released; with what the server adds it is about four kilobytes, as a Cluster of
Cluster API or a NodeClaim of Karpenter is."""

_CREATED_AT_ONCE: Final = 32
DELETED_AT_ONCE: Final = 50
_LOOK: Final = 0.05
_STILL_FOR: Final = 1.0
_SERVED_WITHIN: Final = 60.0
_PAGE: Final = 1000
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class TookTooLongError(Exception):
    """What was waited for did not happen; the message says what."""


@dataclass(frozen=True)
class Deleted:
    """When each object's delete call was sent, by name, and when none of them was left; epoch seconds."""

    calls: dict[str, float]
    over: float

    @property
    def seconds(self) -> float:
        return self.over - min(self.calls.values())


@dataclass(frozen=True)
class PacedCalls:
    """Seconds from each delete call to its answer, and from the first call to the last answer."""

    latencies: list[float]
    seconds: float


def names(count: int) -> list[str]:
    return [f"object-{number:06}" for number in range(count)]


def spec_of(number: int, size: int) -> dict[str, Any]:
    """Different in each object, so that nothing is kept once for all."""
    line = f"{number:06}-{'abcdefghij' * 5}"
    return {"number": number, "lines": [f"{line}-{place}" for place in range(size // len(line))]}


def object_of(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def path_of(plural: str, namespace: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"


def _definition(plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


# ---- calls


async def answer(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    data = None if body is None else json.dumps(body).encode()
    async with session.request(method, path, data=data, headers=headers) as response:
        text = await response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path} was answered {response.status}: {text[:300].decode(errors='replace')}")
        return json.loads(text)


async def create_namespace(session: aiohttp.ClientSession, name: str) -> None:
    await answer(session, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})


async def define(session: aiohttp.ClientSession, plural: str, kind: str) -> None:
    await answer(session, "POST", _DEFINITIONS, _definition(plural, kind))


async def create(session: aiohttp.ClientSession, items: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Pairs of path and object."""
    await each(items, lambda item: answer(session, "POST", *item))


async def define_crds(session: aiohttp.ClientSession, crds: Iterable[Crd]) -> None:
    """Those that are not there yet; returns when all are served."""
    missing = [crd for crd in crds if not await _listed(session, crd.path())]
    for crd in missing:
        await answer(session, "POST", _DEFINITIONS, crd.definition())
    for crd in missing:
        await until(partial(_listed, session, crd.path()), _SERVED_WITHIN, f"{crd.plural} are served", lambda: None)


async def serves(session: aiohttp.ClientSession, plural: str) -> bool:
    return await _listed(session, f"/apis/{GROUP}/{VERSION}/{plural}")


async def _listed(session: aiohttp.ClientSession, path: str) -> bool:
    async with session.get(path, params={"limit": "1"}) as response:
        return response.status == 200


async def each(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, Any]], at_once: int = _CREATED_AT_ONCE
) -> None:
    left = iter(items)

    async def take() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())


async def until(
    holds: Callable[[], Coroutine[Any, Any, bool]], within: float, what: str, check: Callable[[], None]
) -> None:
    deadline = time.monotonic() + within
    while not await holds():
        check()
        if time.monotonic() > deadline:
            raise TookTooLongError(f"waited {within:g} s in vain until {what}")
        await asyncio.sleep(_LOOK)


async def wait_until_held(
    session: aiohttp.ClientSession, namespace: str, count: int, within: float, check: Callable[[], None]
) -> None:
    deadline = time.monotonic() + within
    before: frozenset[tuple[str, str]] = frozenset()
    while True:
        found = [one["metadata"] for one in await _list_all(session, namespace)]
        held = sum(bool(meta.get("finalizers")) for meta in found)
        now = frozenset((meta["name"], meta["resourceVersion"]) for meta in found)
        if held == count and now == before:
            return
        check()
        if time.monotonic() > deadline:
            raise TookTooLongError(f"only {held} of {count} objects had its finalizer after {within:g} s")
        before = now
        await asyncio.sleep(_STILL_FOR)


async def _list_all(session: aiohttp.ClientSession, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    more = ""
    while True:
        params = {"limit": str(_PAGE), **({"continue": more} if more else {})}
        async with session.get(path_of(THINGS, namespace), params=params) as response:
            page = json.loads(await response.read())
        found += page["items"]
        more = page["metadata"].get("continue", "")
        if not more:
            return found


async def delete_all(
    session: aiohttp.ClientSession, namespace: str, count: int, within: float, check: Callable[[], None]
) -> Deleted:
    path = path_of(THINGS, namespace)
    calls: dict[str, float] = {}

    async def delete(name: str) -> None:
        calls[name] = time.time()
        async with session.delete(f"{path}/{name}") as response:
            await response.read()
            if response.status >= 300:
                raise RuntimeError(f"DELETE {path}/{name} was answered {response.status}")

    async def none_left() -> bool:
        async with session.get(path, params={"limit": "1"}) as response:
            return not json.loads(await response.read())["items"]

    await each(names(count), delete, DELETED_AT_ONCE)
    await until(none_left, within, "all objects were released", check)
    return Deleted(calls, time.time())


async def delete_paced(
    session: aiohttp.ClientSession, path: str, wanted: Iterable[str], per_second: float
) -> PacedCalls:
    """Each call is sent when it is due, or later while too many are in flight."""
    latencies: list[float] = []
    began = time.perf_counter()

    async def delete(item: tuple[int, str]) -> None:
        number, name = item
        await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        called = time.perf_counter()
        async with session.delete(f"{path}/{name}") as response:
            await response.read()
            if response.status >= 300:
                raise RuntimeError(f"DELETE {path}/{name} was answered {response.status}")
        latencies.append(time.perf_counter() - called)

    await each(enumerate(wanted), delete, DELETED_AT_ONCE)
    return PacedCalls(latencies, time.perf_counter() - began)
