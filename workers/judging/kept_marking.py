"""Step of the release job that tags and records resources that stay on purpose.
As part of the job it is repeated after a restart; it delays the release by a few minutes at most."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog
from redis.exceptions import RedisError

from service.contract import Pending
from service.contract.kept import KeepDecision, retained_value
from service.engine.calls import ServerUnavailable
from service.engine.kept_store import KeptStore
from service.kubernetes import KubeObject, NotServed
from service.masking import mask_text
from service.settings import SourceSettings
from workers.handlers.collector import Collector, ObjectRef
from workers.handlers.kept_resources import KeepRequest, MarksKept, NotMarked
from workers.handlers.protocol import NotCleared
from workers.handlers.source_clusters import SourceClusters

log = structlog.get_logger(__name__)

WITHIN: Final = timedelta(minutes=5)
"""How long a release waits for tags; after that the object is released with a record but without tags."""

AGAIN: Final = timedelta(seconds=10)
"""When tagging is tried again, or later if a budget or a provider says so."""

DONE: Final = "kept"
_SINCE: Final = "keeping since "


class KeptMarkingStep:
    """`now` is wall-clock time in seconds, because the wait continues across restarts."""

    def __init__(
        self,
        sources: Mapping[str, SourceSettings],
        clusters: SourceClusters,
        collectors: Mapping[str, Collector],
        kept_store: KeptStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sources, self._clusters, self._collectors = dict(sources), clusters, dict(collectors)
        self._kept_store, self._now = kept_store, now

    async def keep(self, ref: ObjectRef, resume: str) -> Pending | None:
        """None if nothing is left to do. Raises ClusterError if the object can't be read."""
        source = self._sources.get(ref.source)
        keeper: object = self._collectors.get(source.collector) if source is not None else None
        if resume == DONE or not isinstance(keeper, MarksKept):
            return None
        now = int(self._now() * 1000)
        asked, remark = await self._asked(ref, now), ""
        try:
            decisions = await _marked(keeper, asked)
        except NotMarked as error:
            since = int(resume.removeprefix(_SINCE)) if resume.startswith(_SINCE) else now
            left = WITHIN - timedelta(milliseconds=now - since)
            if error.again and left > timedelta(0):
                wait = min(max(AGAIN, error.after or AGAIN), left)
                return Pending(wait, f"what stays is not marked yet: {error}", resume=f"{_SINCE}{since}")
            log.warning("released without a mark on what stays", deletion=ref.deletion, reason=str(error))
            decisions, remark = error.decisions, f": {error}"
        if not decisions:
            # Nothing is left of it, or there is no name under which it could be recorded.
            return Pending(timedelta(0), f"nothing is remembered of what stays{remark}", resume=DONE)
        for decision in decisions:
            await self._kept_store.save(decision)
        return Pending(timedelta(0), _words(decisions), resume=DONE)

    async def _asked(self, ref: ObjectRef, now: int) -> KeepRequest:
        live = await self._live(ref)
        mark = retained_value(ref.cluster, ref.resource, ref.namespace, ref.name, ref.uid)
        same = live is not None and live.uid == ref.uid
        return KeepRequest(
            ref=ref, live=live if same else None, at=now, namesake=live is not None and not same, mark=mark,
            abandoned=await self._kept_store.abandoned(ref.deletion), whole=ref.kept.startswith("retain: "),
        )  # fmt: skip

    async def _live(self, ref: ObjectRef) -> KubeObject | None:
        """None for an observed object whose CRD is gone. Other releases need the CRD, and wait for it."""
        cluster = self._clusters.of(ref.source)
        if cluster is None or ref.orphan:
            return None
        try:
            return await cluster.get(ref.resource, ref.namespace, ref.name)
        except NotServed:
            if self._sources[ref.source].mode != "observe":
                raise
            return None


async def _marked(keeper: MarksKept, asked: KeepRequest) -> Sequence[KeepDecision]:
    """Raises NotMarked for any error of tagging."""
    try:
        return await keeper.keep(asked)
    except (NotMarked, NotCleared, ServerUnavailable, RedisError):
        raise
    except Exception as error:
        # A release can't be abandoned: a permanent error, such as undecodable job data, would block the object for
        # ever.
        raise NotMarked(mask_text(f"{type(error).__name__}: {error}")) from error


def _words(decisions: Sequence[KeepDecision]) -> str:
    refused = [resource.tag for one in decisions for resource in one.resources if resource.tag]
    count = sum(len(one.resources) for one in decisions)
    words = f"what stays is remembered as {', '.join(one.key for one in decisions)}, {count} resources are known"
    return f"{words}; {len(refused)} of them {refused[0]}" if refused else words
