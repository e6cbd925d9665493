"""Common part of the scenarios with clouds: the service, its settings, commands, waits.
Subclasses add the objects, the cloud, and how the source's resources are read."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from service.engine.installation import Installation
from service.engine.views.deletions import DeletionView, deletion_details, list_deletions
from service.engine.views.jobs import JobView, list_jobs
from service.settings import RedisSettings, Settings, load
from tests.api_servers import TestApi
from tests.engine.waiting import stays, until
from tests.integration.command_line import CommandResult, environment, invoke
from tests.scenarios.watch.service import KnellReplica, Service

PATIENCE: Final = timedelta(seconds=100)
STEP: Final = 0.05
"""Between two looks; most go over HTTP."""
MOST: Final = 10_000
"""Deletions of one scenario."""
QUICK: Final[dict[str, Any]] = {
    "aws": {"check_after": "100ms"},
    "watch": {"page": 100, "retry": "300ms"},
    "worker": {"grace": "5s"},
    "retry": {"base": "50ms", "cap": "1s", "refused_recheck": "300ms"},
    "log": {"level": "info", "format": "json"},
}
"""Settings with short waits, for a source that needs no others."""


class CloudScenario:
    """`document` are the settings, as their file has them; a test changes them before it starts something."""

    def __init__(self, api: TestApi, redis: RedisSettings, folder: Path, settings: Mapping[str, Any]) -> None:
        self.api, self.redis, self.folder = api, redis, folder
        self.home = api.namespace()
        self.installation = Installation(Settings(redis=redis))
        self.services: list[Service] = []
        self.replicas: list[KnellReplica] = []
        # Deep, for tests change it.
        self.document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
        self.document["redis"] = {"url": str(redis.url), "prefix": redis.prefix}
        self.document["watch"]["namespace"] = self.home
        here = {"kubeconfig": str(api.kubeconfig(folder / "admin")), "context": "local"}
        self.document["clusters"] = {"here": here}

    async def aclose(self) -> None:
        for replica in self.replicas:
            replica.end()
        for service in self.services:
            await service.end()
        await self.installation.aclose()

    # ---- the service

    async def start(self, *, watches: bool = True, works: bool = True) -> Service:
        """Both sides in this process, with the settings as they stand; returns when all sources are listed."""
        service = Service(load(self.config(), {}), watches=watches, works=works)
        self.services.append(service)
        await service.start()
        if watches:
            await service.until_watching(*self.document["sources"])
        return service

    def launch(self, *words: str) -> KnellReplica:
        """A real process, such as of `knell work`."""
        replica = KnellReplica(self.folder, self.redis, self.config(), *words)
        self.replicas.append(replica)
        return replica

    def knell(self, *words: str) -> CommandResult:
        """A command, as an operator types it; from an async test in a thread, for it brings a loop of its own."""
        return invoke(environment(self.redis), "--config", str(self.config()), *words)

    async def command(self, *words: str) -> Any:
        """The JSON of a command that succeeds."""
        answer = await asyncio.to_thread(self.knell, *words, "--output", "json")
        assert answer.code == 0, (answer.out, answer.err)
        return answer.json

    def config(self) -> Path:
        path = self.folder / "knell.yaml"
        path.write_bytes(msgspec.yaml.encode(self.document))
        return path

    # ---- what came of it

    async def deletions(self) -> list[DeletionView]:
        """All that are recorded, whatever state they are in."""
        listings = [
            await list_deletions(self.installation, state=state, limit=MOST) for state in (None, "done", "dropped")
        ]
        return [view for listing in listings for view in listing.deletions]

    async def every_job(self) -> list[JobView]:
        """Of all deletions, ended or not."""
        found = [await deletion_details(self.installation, view.id, limit=None) for view in await self.deletions()]
        return [job for details in found if details is not None for job in details.jobs]

    async def audited(self) -> str:
        """All that the audit says."""
        client: Any = self.installation.connections.client
        entries = await client.xrange(self.installation.keys.of(0, "audit"))
        return "\n".join(f"{key.decode()} {value.decode()}" for _, entry in entries for key, value in entry.items())

    # ---- waiting

    async def until(self, what: str, look: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
        """`look` may be a coroutine function; one that is not looks from another thread, for the service is in this."""

        async def seen() -> Any:
            for service in self.services:
                service.look()
            return await self._seen(look)

        return await until(what, seen, within, step=STEP)

    async def until_job(self, *words: str) -> None:
        """The only job says all of this about why it is where it is."""

        async def look() -> bool:
            jobs = (await list_jobs(self.installation)).jobs
            return len(jobs) == 1 and all(word in jobs[0].reason for word in words)

        await self.until(f"the job says {words}", look)

    async def stays(self, what: str, look: Callable[[], Any], during: timedelta = timedelta(seconds=1)) -> None:
        await stays(what, partial(self._seen, look), during, step=STEP)

    async def _seen(self, look: Callable[[], Any]) -> Any:
        return await look() if inspect.iscoroutinefunction(look) else await asyncio.to_thread(look)
