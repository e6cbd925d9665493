"""Cache of the annotations of protection of all Namespaces, from a list and watch of their metadata.
It is used only while its watch is open; otherwise, and for a Namespace that it does not know, it reads the live one."""

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Final

import structlog

from service.contract.names import PREVENT_DELETE
from service.kubernetes import NAMESPACES, ClusterError, Expired, KubernetesClient, Unreadable, WatchEvent
from service.masking import mask_text
from service.settings import WatchSettings

log = structlog.get_logger(__name__)

_FIRST_WAIT: Final = 0.2
_LONGEST_SILENCE: Final = timedelta(seconds=90)
"""The server sends a bookmark about every minute; a connection that is longer silent may be dead."""
_MOST: Final = 100_000
_LONGEST: Final = 4096
"""Characters of the annotations of one Namespace; longer ones are read when they are needed."""
_NONE: Final[Mapping[str, str]] = {}


class NamespaceCache:
    """`problem` says why the API server is asked about each Namespace; `reads` counts these questions."""

    def __init__(self, cluster: KubernetesClient, watch: WatchSettings) -> None:
        self._cluster, self._watch = cluster, watch
        self._silence = min(watch.silence, _LONGEST_SILENCE)
        self._known: dict[str, Mapping[str, str]] = {}
        self._open = False
        self.synced = False
        """Whether it was complete once."""
        self.problem = "the Namespaces have not been listed yet"
        self.reads = 0

    @property
    def live(self) -> bool:
        return self._open

    def sure(self, name: str) -> bool:
        return self._open and name in self._known

    async def annotations(self, name: str) -> Mapping[str, str]:
        """Raises ClusterError if they can't be known, NotFound if there is no such Namespace."""
        if self._open and (known := self._known.get(name)) is not None:
            return known
        self.reads += 1
        return await self._cluster.namespace_annotations(name)

    async def run(self) -> None:
        """Until cancelled."""
        wait = _FIRST_WAIT
        while True:
            try:
                version = await self._list()
                wait = _FIRST_WAIT
                await self._follow(version)
            except Expired as error:
                log.debug("watch of Namespaces expired, listing again", cluster=self._cluster.name, reason=str(error))
                await asyncio.sleep(random.uniform(0, _FIRST_WAIT))
            except ClusterError as error:
                self._set_problem(str(error))
                await asyncio.sleep(wait)
                wait = min(wait * 2, self._watch.retry.total_seconds())
            except Exception as error:
                # Reviews go on without the cache.
                log.exception("cache of Namespaces failed", cluster=self._cluster.name)
                self._set_problem(mask_text(f"{type(error).__name__}: {error}"))
                await asyncio.sleep(self._watch.retry.total_seconds())

    async def _list(self) -> str:
        found, version = dict[str, Mapping[str, str]](), ""
        pages = self._cluster.pages(NAMESPACES, None, limit=self._watch.page, metadata_only=True)
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for seen in page.items:
                    _put(found, seen.name, seen.annotations)
        self._known = found
        return version

    async def _follow(self, version: str) -> None:
        """Raises what ended the watch. A watch that the server closed in order is resumed."""
        while True:
            began = time.monotonic()
            watch = self._cluster.watch(
                NAMESPACES,
                None,
                "",
                version,
                silence=self._silence,
                metadata_only=True,
                opened=self._begin,
            )
            try:
                async with aclosing(watch) as changes:
                    async for change in changes:
                        version = change.resource_version or version
                        self._apply(change)
            finally:
                self._open = False
            if time.monotonic() - began < 1:
                # Backs off from a server that ends every watch at once.
                await asyncio.sleep(_FIRST_WAIT)

    def _begin(self) -> None:
        if self.problem:
            log.info("annotations of Namespaces are cached", cluster=self._cluster.name, namespaces=len(self._known))
        self._open, self.synced, self.problem = True, True, ""

    def _apply(self, change: WatchEvent) -> None:
        if change.unreadable and change.seen is None:
            raise Unreadable(f"a Namespace changed that can't be decoded: {change.unreadable}")
        if change.seen is None:
            return
        if change.kind == "DELETED" or change.unreadable:
            self._known.pop(change.seen.name, None)
        else:
            _put(self._known, change.seen.name, change.seen.annotations)

    def _set_problem(self, why: str) -> None:
        if why != self.problem:
            self.problem = why
            log.warning("the API server is asked about each Namespace", cluster=self._cluster.name, reason=why)


def _put(known: dict[str, Mapping[str, str]], name: str, annotations: Mapping[str, str]) -> None:
    """Bounded: of too many Namespaces, or too long annotations, none is kept, so that the API server is asked."""
    kept = {key: value for key, value in annotations.items() if key.endswith(f"/{PREVENT_DELETE}")}
    if sum(len(key) + len(value) for key, value in kept.items()) > _LONGEST or len(known) >= _MOST:
        known.pop(name, None)
    else:
        known[name] = kept or _NONE
