"""One cluster as this process watches it: reached, proven to be the right one, and left at once when it is not.
A cluster that does not answer is tried again for ever; the others never notice."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from service.engine.witnesses import Restored, Witnesses
from service.kubernetes import ClusterError
from service.masking import mask_text
from service.settings import Settings
from service.watching.clusters import Identities, OtherCluster, reached
from service.watching.confirmed import ConfirmedCluster
from service.watching.namespace_marks import NamespaceMarks
from service.watching.replicas import Post

log = structlog.get_logger(__name__)

LOOK: Final = timedelta(seconds=10)
"""How often a cluster is asked who it is."""
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 10.0


class Site:
    def __init__(
        self, name: str, settings: Settings, identities: Identities, witnesses: Witnesses, posts: Sequence[Post]
    ) -> None:
        self.name, self.posts = name, posts
        self._witnesses = witnesses
        self.restored: Restored | None = None
        """How Redis says that it was restored from a backup, None where it does not."""
        self.uid = ""
        self.refused = False
        """Whether it answers and is the wrong one."""
        self.trouble = "it has not answered yet"
        self.since = datetime.now(UTC)
        self._settings, self._identities = settings, identities

    @property
    def up(self) -> bool:
        return not self.trouble

    async def run(self) -> None:
        """Watch what is to be watched in this cluster, until cancelled."""
        wait = _FIRST_WAIT
        while True:
            try:
                await self._stay()
            except* OtherCluster as errors:
                self._down(str(_first(errors)), refused=True)
                wait = self._settings.watch.retry.total_seconds()
            except* ClusterError as errors:
                wait = min(wait * 2, _LONGEST_WAIT) if not self.up else _FIRST_WAIT
                self._down(str(_first(errors)))
            except* Exception as errors:
                # Whatever it is, it is this cluster's: it is shown, and the others go on.
                log.exception("cluster failed and is begun anew", cluster=self.name)
                self._down(mask_text(f"{type(_first(errors)).__name__}: {_first(errors)}"))
                wait = self._settings.watch.retry.total_seconds()
            await asyncio.sleep(wait)

    async def _stay(self) -> None:
        async with reached(self._settings, self.name) as cluster:
            uid = await cluster.identity()
            await self._identities.confirm(self.name, uid)
            self._well(uid)
            confirmed = ConfirmedCluster(cluster, uid)
            namespaces = NamespaceMarks(confirmed, self._settings.watch)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look_again(confirmed))
                group.create_task(namespaces.run())
                for post in self.posts:
                    group.create_task(post.run(confirmed, uid, namespaces))

    async def _look_again(self, cluster: ConfirmedCluster) -> None:
        """When somebody saw another cluster, nothing goes on here; and now and then, whatever was seen."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK.total_seconds()):
                    await cluster.wrong.wait()
            try:
                await cluster.confirm()
            except OtherCluster:
                raise
            except ClusterError as error:
                # The posts have patience of their own: a short absence costs no Lease and no list.
                self._down(str(error))
                continue
            cluster.wrong.clear()
            await self._identities.confirm(self.name, cluster.uid)
            self.restored = (await self._witnesses.restored()).get(cluster.uid)
            self._well(cluster.uid)

    def _well(self, uid: str) -> None:
        if not self.up or uid != self.uid:
            log.info("cluster reached", cluster=self.name, uid=uid)
            self.since = datetime.now(UTC)
        self.uid, self.trouble, self.refused = uid, "", False

    def _down(self, why: str, *, refused: bool = False) -> None:
        if self.up or refused != self.refused or why != self.trouble:
            log.error("cluster refused" if refused else "cluster away, trying on", cluster=self.name, why=why)
        if self.up:
            self.since = datetime.now(UTC)
        self.trouble, self.refused = why, refused


def _first(errors: BaseExceptionGroup[Exception]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
