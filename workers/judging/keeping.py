"""The step before a release that leaves something behind on purpose: what stays is marked and remembered.
It is part of the release job, so that a restart repeats it; it never keeps the object for longer than a few minutes."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from service.contract import Pending
from service.contract.kept import Decision, retained_value
from service.settings import SourceSettings
from service.stream.kept import KeptMemory
from workers.handlers.memory import Keep, Keeper, NotMarked
from workers.handlers.objects import About, Collector
from workers.handlers.places import Places

log = structlog.get_logger(__name__)

WITHIN: Final = timedelta(minutes=5)
"""So long a release waits for marks; then the object goes with what could be remembered without them."""

AGAIN: Final = timedelta(seconds=10)
DONE: Final = "kept"
_SINCE: Final = "keeping since "


class KeepingStep:
    """`now` is the time of day in seconds: the wait goes on across restarts."""

    def __init__(
        self,
        sources: Mapping[str, SourceSettings],
        places: Places,
        collectors: Mapping[str, Collector],
        memory: KeptMemory,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sources, self._places, self._collectors = dict(sources), places, dict(collectors)
        self._memory, self._now = memory, now

    async def keep(self, about: About, resume: str) -> Pending | None:
        """None where nothing is left to do. Raises ClusterError where the object can't be read."""
        source = self._sources.get(about.source)
        keeper: object = self._collectors.get(source.collector) if source is not None else None
        if resume == DONE or not isinstance(keeper, Keeper):
            return None
        now = int(self._now() * 1000)
        try:
            decisions = await keeper.keep(await self._asked(about, now))
        except NotMarked as error:
            since = int(resume.removeprefix(_SINCE)) if resume.startswith(_SINCE) else now
            if error.again and now - since < WITHIN / timedelta(milliseconds=1):
                return Pending(AGAIN, f"what stays is not marked yet: {error}", resume=f"{_SINCE}{since}")
            log.warning("released without a mark on what stays", deletion=about.deletion, reason=str(error))
            decisions = error.decisions
        if not decisions:
            # Nothing is left of it, or nobody can tell under which name it could be remembered.
            return Pending(timedelta(0), "nothing is remembered of what stays", resume=DONE)
        for decision in decisions:
            await self._memory.remember(decision)
        return Pending(timedelta(0), _words(decisions), resume=DONE)

    async def _asked(self, about: About, now: int) -> Keep:
        place, live = self._places.of(about.source), None
        if place is not None and not about.orphan:
            live = await place.get(about.resource, about.namespace, about.name)
        mark = retained_value(about.cluster, about.resource, about.namespace, about.name, about.uid)
        same = live is not None and live.uid == about.uid
        return Keep(
            about=about, live=live if same else None, at=now, namesake=live is not None and not same, mark=mark,
            abandoned=await self._memory.abandoned(about.deletion), whole=about.kept.startswith("retain: "),
        )  # fmt: skip


def _words(decisions: Sequence[Decision]) -> str:
    refused = [resource.tag for one in decisions for resource in one.resources if resource.tag]
    count = sum(len(one.resources) for one in decisions)
    words = f"what stays is remembered as {', '.join(one.key for one in decisions)}, {count} resources are known"
    return f"{words}; {len(refused)} of them {refused[0]}" if refused else words
