"""Liveness and readiness of one process.
Alive is whoever answers at all: the loop turns. Ready is who can also reach its server and neither starts nor
stops; a process that is not ready keeps trying and says why."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from service.web.watch import Watch


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """One reason not to be ready."""

    what: str
    why: str
    since: datetime


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`problems` are shown, but the process does its work in spite of them."""

    ready: bool
    hindrances: list[Hindrance]
    problems: list[Hindrance] = []


class Health:
    """`stage` says what the process is at: `starting`, `working` or `stopping`. `more` are hindrances of its own,
    `problems` what is wrong with a part of its work."""

    def __init__(
        self,
        watch: Watch,
        stage: Callable[[], str],
        more: Callable[[], Sequence[Hindrance]] = tuple,
        problems: Callable[[], Sequence[Hindrance]] = tuple,
    ) -> None:
        self._watch, self._stage, self._more, self._problems = watch, stage, more, problems
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
        found += self._more()
        return Readiness(ready=not found, hindrances=found, problems=list(self._problems()))
