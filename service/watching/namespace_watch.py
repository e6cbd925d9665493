"""Watch of the Namespaces of one cluster, which notifies listeners of changed policy annotations. It only saves time:
where it is forbidden or fails, changed annotations are noticed later."""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final

import structlog

from service.kubernetes import (
    NAMESPACES,
    ClusterError,
    Expired,
    Forbidden,
    KubernetesClient,
    Unauthorized,
    WatchEvent,
    WatchStalled,
)
from service.settings import WatchSettings

log = structlog.get_logger(__name__)

NamespaceListener = Callable[[Collection[str] | None], None]
"""Gets the names of Namespaces whose annotations changed; None if it is not known which."""

_FIRST_WAIT: Final = 1.0


class NamespaceWatch:
    """For all sources of a cluster. Keeps a hash of each Namespace that has policy annotations. `problem` says why they
    are not watched."""

    def __init__(self, cluster: KubernetesClient, watch: WatchSettings) -> None:
        self._cluster, self._watch = cluster, watch
        self._listeners: dict[NamespaceListener, None] = {}
        self._wanted = asyncio.Event()
        self._known: dict[str, int] | None = None
        self.problem = ""

    def subscribe(self, listener: NamespaceListener) -> None:
        """The first listener starts the watch."""
        self._listeners[listener] = None
        self._wanted.set()

    def unsubscribe(self, listener: NamespaceListener) -> None:
        """Without listeners the watch ends at its next event."""
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
                self._set_problem(str(error))
                refused = isinstance(error, Forbidden | Unauthorized)
                wait = min(wait * 2, self._watch.retry.total_seconds())
                await asyncio.sleep(self._watch.retry.total_seconds() if refused else wait)
            except Exception as error:
                # No source may end because of it.
                log.exception("watch of Namespaces failed", cluster=self._cluster.name)
                self._set_problem(f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._watch.retry.total_seconds())

    # ---- reading

    async def _list(self) -> str:
        """Also reports what changed while nothing watched; the first time that is not known."""
        found, version = dict[str, int](), ""
        pages = self._cluster.pages(NAMESPACES, None, limit=self._watch.page, metadata_only=True)
        async with aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for seen in page.items:
                    if current := annotation_hash(seen.annotations):
                        found[seen.name] = current
        before, self._known = self._known, found
        if self.problem:
            log.info("annotations of Namespaces are watched again", cluster=self._cluster.name)
            self.problem = ""
        if before is None:
            self._notify(None)
        else:
            self._notify({name for name in (*before, *found) if before.get(name) != found.get(name)})
        return version

    async def _follow(self, version: str) -> None:
        """Returns when there is no listener; raises what ended the watch."""
        while self._listeners:
            began = time.monotonic()
            watch = self._cluster.watch(
                NAMESPACES, None, "", version, silence=self._watch.silence, metadata_only=True
            )  # fmt: skip
            try:
                async with aclosing(watch) as changes:
                    async for change in changes:
                        version = change.resource_version or version
                        self._apply_event(change)
                        if not self._listeners:
                            return
            except WatchStalled as error:
                log.debug("watch of Namespaces stalled", cluster=self._cluster.name, reason=str(error))
            if time.monotonic() - began < 1:
                # Backs off from a server that ends every watch at once.
                await asyncio.sleep(_FIRST_WAIT)

    def _apply_event(self, change: WatchEvent) -> None:
        if change.seen is None or change.unreadable or self._known is None:
            return
        name = change.seen.name
        before = self._known.pop(name, 0)
        current = 0 if change.kind == "DELETED" else annotation_hash(change.seen.annotations)
        if current:
            self._known[name] = current
        if current != before:
            self._notify({name})

    # ---- notifying

    def _notify(self, names: Collection[str] | None) -> None:
        if names is None or names:
            for listener in tuple(self._listeners):
                listener(names)

    def _set_problem(self, why: str) -> None:
        if why != self.problem:
            self.problem = why
            log.warning(
                "annotations of Namespaces are not watched, changes are noticed within minutes",
                cluster=self._cluster.name,
                reason=why,
            )


def annotation_hash(annotations: Mapping[str, str]) -> int:
    """Of the policy annotations, which are all that is read; 0 if there are none."""
    return (hash(frozenset(annotations.items())) or 1) if annotations else 0
