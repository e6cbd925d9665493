"""The service in a scenario: watch side and worker in this process, composed as `knell run` does, or real processes.
The state of the first can be inspected, the second can be killed."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from service.cli.work import open_registry
from service.engine.installation import Installation
from service.kubernetes import RecentObjects
from service.settings import RedisSettings, Settings
from service.watching.share_lease import ShareLease
from service.watching.watcher import Watcher
from tests.engine.waiting import PATIENCE, until
from tests.integration.knell_process import KnellProcess
from workers.runtime.worker import Worker


class Service:
    """Both sides, inside this process. `watches` and `works` say which of them it has."""

    def __init__(self, settings: Settings, *, watches: bool = True, works: bool = True) -> None:
        self.settings = settings
        self._watches, self._works = watches, works
        self.watcher: Watcher | None = None
        self.worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self.until("both sides are ready", self._is_ready)

    async def stop(self) -> None:
        """In order, as after a first signal."""
        task, self._task = self._task, None
        if task is None:
            return
        if self.watcher is not None:
            self.watcher.stop()
        if self.worker is not None:
            self.worker.stop()
        async with asyncio.timeout(PATIENCE.total_seconds()):
            await task

    async def end(self) -> None:
        """Whatever happened."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def look(self) -> None:
        """Raises what ended it, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()
            raise AssertionError("the service ended by itself")

    def share_lease(self, source: str) -> ShareLease:
        assert self.watcher is not None
        return next(share_lease for share_lease in self.watcher.share_leases if share_lease.share.source == source)

    async def until_watching(self, *sources: str) -> None:
        share_leases = [self.share_lease(source) for source in sources]
        await self.until(
            f"{', '.join(sources)} are listed",
            lambda: all(share_lease.counters.relists for share_lease in share_leases),
        )

    async def until(self, what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
        async def looked() -> Any:
            self.look()
            return look()

        return await until(what, looked, within)

    def _is_ready(self) -> bool:
        watching = not self._watches or (self.watcher is not None and self.watcher.ready)
        return watching and (not self._works or (self.worker is not None and self.worker.ready))

    async def _run(self) -> None:
        installation, recent_objects = Installation(self.settings), RecentObjects()
        try:
            async with (
                open_registry(self.settings, installation, recent_objects) as registry,
                asyncio.TaskGroup() as group,
            ):
                if self._watches:
                    self.watcher = Watcher(self.settings, installation, recent_objects)
                    group.create_task(self.watcher.run())
                if self._works:
                    self.worker = Worker(installation, registry)
                    group.create_task(self.worker.run())
        finally:
            await installation.aclose()


class KnellReplica:
    """A real process of `knell`, with a surface that is asked from another thread: this one serves the provider."""

    def __init__(self, folder: Path, redis: RedisSettings, config: Path, *words: str, **variables: str) -> None:
        self.process = KnellProcess(folder, redis, "--config", str(config), *words, **variables)

    @property
    def name(self) -> str:
        return f"worker-{self.process.port}"

    @property
    def log(self) -> str:
        return self.process.log.read_text(errors="replace")

    async def until_ready(self) -> None:
        await asyncio.to_thread(self.process.until_ready)

    def kill(self) -> None:
        """kill -9, without a chance to hand anything back."""
        os.kill(self.process.process.pid, signal.SIGKILL)
        self.process.process.wait()

    def freeze(self) -> None:
        """SIGSTOP: it is still there, and does nothing."""
        self.process.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, and an orderly end."""
        self.process.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(self.process.end) == 0, self.log[-4000:]

    def end(self) -> None:
        """Whatever happened."""
        if self.process.process.poll() is None:
            self.process.process.kill()
        self.process.process.wait()
