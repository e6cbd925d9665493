"""Follows the Namespaces of one cluster and tells whose policy marks changed, so that nobody has to ask now and then.
It is for speed alone: where it may not be done or breaks, changed marks are noticed later, as without it."""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final

import structlog

from service.kubernetes import NAMESPACES, Change, Cluster, ClusterError, Expired, Forbidden, Silent, Unauthorized
from service.settings import WatchSettings

log = structlog.get_logger(__name__)

Listener = Callable[[Collection[str] | None], None]
"""Is told the names of Namespaces with other marks than before; None where nobody can tell which."""

_FIRST_WAIT: Final = 1.0


class NamespaceMarks:
    """Of one cluster, for all its sources. Only Namespaces that have a mark are kept, each as a number. `trouble` says
    why they are not watched at the moment."""

    def __init__(self, cluster: Cluster, watch: WatchSettings) -> None:
        self._cluster, self._watch = cluster, watch
        self._listeners: dict[Listener, None] = {}
        self._wanted = asyncio.Event()
        self._known: dict[str, int] | None = None
        self.trouble = ""

    def listen(self, listener: Listener) -> None:
        """From now on; the first one has the watch begin."""
        self._listeners[listener] = None
        self._wanted.set()

    def leave(self, listener: Listener) -> None:
        """Nothing happens where it does not listen; without listeners the watch ends at its next sign of life."""
        self._listeners.pop(listener, None)
        if not self._listeners:
            self._wanted.clear()

    async def run(self) -> None:
        """Until cancelled."""
        wait = _FIRST_WAIT
        while True:
            await self._wanted.wait()
            try:
                version = await self._list()
                wait = _FIRST_WAIT
                await self._follow(version)
            except Expired as error:
                log.debug("watch of Namespaces expired, listing again", cluster=self._cluster.name, reason=str(error))
                await asyncio.sleep(random.uniform(0, _FIRST_WAIT))
            except ClusterError as error:
                self._tell_trouble(str(error))
                refused = isinstance(error, Forbidden | Unauthorized)
                wait = min(wait * 2, self._watch.retry.total_seconds())
                await asyncio.sleep(self._watch.retry.total_seconds() if refused else wait)
            except Exception as error:
                # It is a courtesy: no source may end for it.
                log.exception("watch of Namespaces failed", cluster=self._cluster.name)
                self._tell_trouble(f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._watch.retry.total_seconds())

    # ---- reading

    async def _list(self) -> str:
        """What changed while nobody watched is told as well, but for the first time: then nobody knows."""
        found, version = dict[str, int](), ""
        pages = self._cluster.pages(NAMESPACES, None, limit=self._watch.page, metadata_only=True)
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for seen in page.items:
                    if marks := marks_of(seen.annotations):
                        found[seen.name] = marks
        before, self._known = self._known, found
        if self.trouble:
            log.info("marks of Namespaces are watched again", cluster=self._cluster.name)
            self.trouble = ""
        if before is None:
            self._tell(None)
        else:
            self._tell({name for name in (*before, *found) if before.get(name) != found.get(name)})
        return version

    async def _follow(self, version: str) -> None:
        """Returns when nobody listens any more; raises what ended the watch."""
        while self._listeners:
            began = time.monotonic()
            watch = self._cluster.watch(
                NAMESPACES, None, "", version, silence=self._watch.silence, metadata_only=True
            )  # fmt: skip
            try:
                async with aclosing(watch) as changes:
                    async for change in changes:
                        version = change.resource_version or version
                        self._see(change)
                        if not self._listeners:
                            return
            except Silent as error:
                log.debug("watch of Namespaces fell silent", cluster=self._cluster.name, reason=str(error))
            if time.monotonic() - began < 1:
                # A server that ends every watch at once must not be asked all the time.
                await asyncio.sleep(_FIRST_WAIT)

    def _see(self, change: Change) -> None:
        if change.seen is None or change.unreadable or self._known is None:
            return
        name = change.seen.name
        before = self._known.pop(name, 0)
        # Of one that is gone nothing is said any more.
        marks = 0 if change.kind == "DELETED" else marks_of(change.seen.annotations)
        if marks:
            self._known[name] = marks
        if marks != before:
            self._tell({name})

    # ---- telling

    def _tell(self, names: Collection[str] | None) -> None:
        if names is None or names:
            for listener in tuple(self._listeners):
                listener(names)

    def _tell_trouble(self, why: str) -> None:
        if why != self.trouble:
            self.trouble = why
            log.warning(
                "marks of Namespaces are not watched, what changes there is noticed within minutes",
                cluster=self._cluster.name,
                reason=why,
            )


def marks_of(annotations: Mapping[str, str]) -> int:
    """A number for what policy may go by, which is all that is read of annotations; 0 for nothing."""
    return (hash(frozenset(annotations.items())) or 1) if annotations else 0
