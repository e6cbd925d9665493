"""Liveness and readiness of one process.
Alive is whoever answers at all: the loop turns. Ready is who can also reach its server and neither starts nor
stops; a process that is not ready keeps trying and says why."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from service.surface.watch import Watch


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """One reason not to be ready."""

    what: str
    why: str
    since: datetime


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    ready: bool
    hindrances: list[Hindrance]


class Health:
    """`stage` says what the process is at: `starting`, `working` or `stopping`."""

    def __init__(self, watch: Watch, stage: Callable[[], str]) -> None:
        self._watch, self._stage = watch, stage
        self._started = datetime.now(UTC)
        self._stopping: datetime | None = None

    async def readiness(self) -> Readiness:
        found: list[Hindrance] = []
        away = await self._watch.away()
        if away is not None:
            found.append(Hindrance(what="redis", why=away.why, since=away.since))
        stage = self._stage()
        if stage == "starting":
            found.append(Hindrance(what="starting", why="it has not yet arrived at all shards", since=self._started))
        if stage == "stopping":
            self._stopping = self._stopping or datetime.now(UTC)
            found.append(Hindrance(what="stopping", why="it takes nothing new", since=self._stopping))
        return Readiness(ready=not found, hindrances=found)
