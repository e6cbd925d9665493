"""The step before a release that leaves something behind on purpose: what stays is marked and remembered.
It is part of the release job, so that a restart repeats it; it never keeps the object for longer than a few minutes."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog
from redis.exceptions import RedisError

from service.contract import Pending
from service.contract.kept import Decision, retained_value
from service.engine.calls import ServerAway
from service.engine.kept import KeptMemory
from service.kubernetes import Live, NotServed
from service.masking import mask_text
from service.settings import SourceSettings
from workers.handlers.memory import Keep, Keeper, NotMarked
from workers.handlers.objects import About, Collector
from workers.handlers.places import Places
from workers.handlers.protocol import NotCleared

log = structlog.get_logger(__name__)

WITHIN: Final = timedelta(minutes=5)
"""So long a release waits for marks; then the object goes with what could be remembered without them."""

AGAIN: Final = timedelta(seconds=10)
"""When it is tried again, or later where a budget or a provider says when."""

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
        asked, remark = await self._asked(about, now), ""
        try:
            decisions = await _marked(keeper, asked)
        except NotMarked as error:
            since = int(resume.removeprefix(_SINCE)) if resume.startswith(_SINCE) else now
            left = WITHIN - timedelta(milliseconds=now - since)
            if error.again and left > timedelta(0):
                wait = min(max(AGAIN, error.after or AGAIN), left)
                return Pending(wait, f"what stays is not marked yet: {error}", resume=f"{_SINCE}{since}")
            log.warning("released without a mark on what stays", deletion=about.deletion, reason=str(error))
            decisions, remark = error.decisions, f": {error}"
        if not decisions:
            # Nothing is left of it, or nobody can tell under which name it could be remembered.
            return Pending(timedelta(0), f"nothing is remembered of what stays{remark}", resume=DONE)
        for decision in decisions:
            await self._memory.remember(decision)
        return Pending(timedelta(0), _words(decisions), resume=DONE)

    async def _asked(self, about: About, now: int) -> Keep:
        live = await self._live(about)
        mark = retained_value(about.cluster, about.resource, about.namespace, about.name, about.uid)
        same = live is not None and live.uid == about.uid
        return Keep(
            about=about, live=live if same else None, at=now, namesake=live is not None and not same, mark=mark,
            abandoned=await self._memory.abandoned(about.deletion), whole=about.kept.startswith("retain: "),
        )  # fmt: skip

    async def _live(self, about: About) -> Live | None:
        """None for an observed object whose CRD is gone. Any other release needs its CRD as well, and waits for it."""
        place = self._places.of(about.source)
        if place is None or about.orphan:
            return None
        try:
            return await place.get(about.resource, about.namespace, about.name)
        except NotServed:
            if self._sources[about.source].mode != "observe":
                raise
            return None


async def _marked(keeper: Keeper, asked: Keep) -> Sequence[Decision]:
    """Raises NotMarked for whatever goes wrong with a mark."""
    try:
        return await keeper.keep(asked)
    except (NotMarked, NotCleared, ServerAway, RedisError):
        raise
    except Exception as error:
        # A release can't be abandoned: an error that stays, such as that of a job's data that can't be decoded, would
        # else keep the object for ever.
        raise NotMarked(mask_text(f"{type(error).__name__}: {error}")) from error


def _words(decisions: Sequence[Decision]) -> str:
    refused = [resource.tag for one in decisions for resource in one.resources if resource.tag]
    count = sum(len(one.resources) for one in decisions)
    words = f"what stays is remembered as {', '.join(one.key for one in decisions)}, {count} resources are known"
    return f"{words}; {len(refused)} of them {refused[0]}" if refused else words
