"""API server on which all contenders that watch objects are measured; it is started when the first row needs it.

The real control plane where it has been built, the embedded API otherwise; the report names which."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from bench import objects
from bench.objects import SMALL, THINGS, USUAL, WATCHED, Deleted
from standins.controlplane import ControlPlane, available
from standins.kubernetes_api import EmbeddedApi

T = TypeVar("T")
Server = ControlPlane | EmbeddedApi

_NAMESPACES: Final = 10
_SERVED_WITHIN: Final = 30.0


class Cluster:
    """Its methods block; each opens connections of its own, so that nothing of the harness is open while others are
    measured."""

    def __init__(self, announce: Callable[[str], None], server: Server | None = None) -> None:
        self._announce = announce
        self._server: Server = server or (ControlPlane() if available() else EmbeddedApi())
        self._folder = tempfile.TemporaryDirectory(prefix="knell-bench-")
        self._numbers = itertools.count(1)
        self._watched = 0
        self.kubeconfig = Path(self._folder.name) / "kubeconfig"
        self.version = ""

    def start(self) -> None:
        self._announce("starting the API server ...")
        self._server.start()
        self._server.kubeconfig(self.kubeconfig)
        self.run(self._prepare)

    def stop(self) -> None:
        self._server.stop()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def token(self) -> str:
        return self._server.token

    @property
    def ca(self) -> str:
        return str(self._server.ca or "")

    @property
    def is_real(self) -> bool:
        return isinstance(self._server, ControlPlane)

    # ---- what contenders are given

    def namespace(self) -> str:
        """A new one for each turn. Old ones stay, empty: their end would be work for the server in the next turn."""
        name = f"turn-{next(self._numbers)}"
        self.run(lambda session: objects.create_namespace(session, name))
        return name

    def fill(self, namespace: str, count: int) -> None:
        named = enumerate(objects.names(count))
        bodies = (objects.object_of("Thing", name, objects.spec_of(number, USUAL)) for number, name in named)
        place = objects.path_of(THINGS, namespace)
        self.run(lambda session: objects.create(session, ((place, body) for body in bodies)))

    def create_watched(self, count: int) -> None:
        """Made once; it takes minutes, and is there for all who come after."""
        if self._watched < count:
            self.run(lambda session: self._create_watched(session, count))
            self._watched = count

    def touch_watched(self) -> None:
        """Changes one of them, so that whoever really watches sees something."""
        (first,) = objects.names(1)
        change = {"metadata": {"labels": {"touched": str(next(self._numbers))}}}
        self.run(lambda session: objects.answer(session, "PATCH", f"{_path_of_watched(0)}/{first}", change))

    # ---- what is measured

    def wait_until_held(self, namespace: str, count: int, within: float, check: Callable[[], None]) -> None:
        """Until each object carries a finalizer and none was changed for a second: what belongs to their creation
        is then over. Raises TookTooLongError, and whatever `check` raises meanwhile."""
        self.run(lambda session: objects.wait_until_held(session, namespace, count, within, check))

    def delete_all(self, namespace: str, count: int, within: float, check: Callable[[], None]) -> Deleted:
        """Raises like `wait_until_held`."""
        return self.run(lambda session: objects.delete_all(session, namespace, count, within, check))

    # ---- how

    async def _prepare(self, session: aiohttp.ClientSession) -> None:
        for plural, kind in ((THINGS, "Thing"), (WATCHED, "Record")):
            await objects.define(session, plural, kind)
            served = partial(objects.serves, session, plural)
            await objects.until(served, _SERVED_WITHIN, f"{plural} are served", lambda: None)
        if isinstance(self._server, EmbeddedApi):
            self.version = "the embedded API, in the process of the harness"
        else:
            told = await objects.answer(session, "GET", "/version")
            self.version = f"kube-apiserver {told['gitVersion']} with etcd and kube-controller-manager"

    async def _create_watched(self, session: aiohttp.ClientSession, count: int) -> None:
        if not self._watched:
            for number in range(_NAMESPACES):
                await objects.create_namespace(session, f"watched-{number}")
        began = time.monotonic()
        named = objects.names(count)
        step = max(count // 10, 1)
        for first in range(self._watched, count, step):
            numbers = range(first, min(first + step, count))
            items = (
                (_path_of_watched(n), objects.object_of("Record", named[n], objects.spec_of(n, SMALL))) for n in numbers
            )
            await objects.create(session, items)
            self._announce(f"created {numbers[-1] + 1:,} of {count:,} objects in {time.monotonic() - began:.0f} s")

    def run(self, work: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, T]]) -> T:
        async def connected() -> T:
            async with self._session() as session:
                return await work(session)

        return asyncio.run(connected())

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        secure = ssl.create_default_context(cafile=self.ca) if self.ca else True
        async with aiohttp.ClientSession(
            self.url,
            connector=aiohttp.TCPConnector(limit=0, ssl=secure),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=aiohttp.ClientTimeout(total=60),
        ) as session:
            yield session


def _path_of_watched(number: int) -> str:
    """Where a watched object is: they are spread over some namespaces."""
    return objects.path_of(WATCHED, f"watched-{number % _NAMESPACES}")
