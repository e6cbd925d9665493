"""Readiness of one process (`/readyz`): Redis answers, and the process is neither starting nor stopping.
A process that is not ready keeps retrying and reports why. Liveness (`/healthz`) needs only a running event loop."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from service.web.redis_probe import RedisProbe


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """One reason not to be ready."""

    what: str
    why: str
    since: datetime


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`problems` are reported, but do not make the process unready."""

    ready: bool
    hindrances: list[Hindrance]
    problems: list[Hindrance] = []


class Health:
    """`stage` returns `starting`, `working` or `stopping`. `more` returns further hindrances of this process,
    `problems` those of a part of its work. A process that needs no Redis has no probe."""

    def __init__(
        self,
        probe: RedisProbe | None,
        stage: Callable[[], str],
        more: Callable[[], Sequence[Hindrance]] = tuple,
        problems: Callable[[], Sequence[Hindrance]] = tuple,
    ) -> None:
        self._probe, self._stage, self._more, self._problems = probe, stage, more, problems
        self._started = datetime.now(UTC)
        self._stopping: datetime | None = None

    async def readiness(self) -> Readiness:
        found: list[Hindrance] = []
        outage = await self._probe.outage() if self._probe is not None else None
        if outage is not None:
            found.append(Hindrance(what="redis", why=outage.why, since=outage.since))
        stage = self._stage()
        if stage == "starting":
            found.append(Hindrance(what="starting", why="it has not yet arrived at all shards", since=self._started))
        if stage == "stopping":
            self._stopping = self._stopping or datetime.now(UTC)
            found.append(Hindrance(what="stopping", why="it takes nothing new", since=self._stopping))
        found += self._more()
        return Readiness(ready=not found, hindrances=found, problems=list(self._problems()))
