"""Kubernetes Events about denied deletions, posted in the background at a limited rate.
A deletecollection that was stopped gets one that names the objects that went before."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from service.admission.judgement import Denial
from service.admission.reviews import OldObject, ReviewRequest
from service.kubernetes import KubeObject, KubernetesClient, ServedResource, post_event
from service.masking import mask_text
from service.settings import FeedbackSettings

log = structlog.get_logger(__name__)

DENIED: Final = "DeletionDenied"
STOPPED: Final = "DeleteCollectionStopped"
QUEUED: Final = 100
"""Events that wait; more are dropped and counted."""
PACE: Final = timedelta(milliseconds=100)
_MOST_REPORTED: Final = 4096
_MOST_SERIES: Final = 256
_MOST_NAMES: Final = 20
_SERIES_GAP: Final = timedelta(seconds=10)
"""Between two objects of one deletecollection; it has no other sign by which they belong together."""


class _WaitingEvent(NamedTuple):
    served: ServedResource
    seen: KubeObject
    reason: str
    message: str


class _CollectionSeries:
    """Objects that were allowed in one deletecollection."""

    def __init__(self) -> None:
        self.at = 0.0
        self.count = 0
        self.names: list[str] = []

    def add(self, name: str, now: float) -> None:
        self.at = now
        self.count += 1
        if len(self.names) < _MOST_NAMES:
            self.names.append(name)


class DenialEvents:
    """`allowed` and `denied` only note what was answered, so that no answer waits for an Event. Limits are those of
    this process: each replica may post an Event about the same object."""

    def __init__(
        self, cluster: KubernetesClient, feedback: FeedbackSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._feedback, self._clock = cluster, feedback, clock
        self._queue: asyncio.Queue[_WaitingEvent] = asyncio.Queue(QUEUED)
        self._reported: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._series: OrderedDict[tuple[str, str, str], _CollectionSeries] = OrderedDict()
        self.dropped = 0

    def allowed(self, request: ReviewRequest, old: OldObject) -> None:
        if request.name or request.dry_run or not self._feedback.events:
            return
        key = _series_key(request)
        series = self._series.pop(key, None)
        if series is None or self._clock() - series.at > _SERIES_GAP.total_seconds():
            series = _CollectionSeries()
        series.add(old.name, self._clock())
        self._series[key] = series
        if len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)

    def denied(self, request: ReviewRequest, old: OldObject, denial: Denial) -> None:
        if request.dry_run or not self._feedback.events:
            return
        if self._may_report((old.uid or f"{old.namespace}/{old.name}", denial.why)):
            self._put(request, old, DENIED, f"{request.user_info.username or 'a client'} was denied: {denial.message}")
        series = None if request.name else self._series.pop(_series_key(request), None)
        if series is not None and self._clock() - series.at <= _SERIES_GAP.total_seconds():
            self._put(request, old, STOPPED, _stopped(request, series))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            waiting = await self._queue.get()
            try:
                await post_event(self._cluster, *waiting, "Warning")
            except Exception as error:
                # Reviews go on without Events.
                log.exception("event not posted", reason=waiting.reason, error=mask_text(str(error)))
            await asyncio.sleep(PACE.total_seconds())

    def _may_report(self, key: tuple[str, str]) -> bool:
        now, every = self._clock(), self._feedback.every.total_seconds()
        before = self._reported.get(key)
        if (before is not None and now - before < every) or self._queue.full():
            self.dropped += self._queue.full()
            return False
        self._reported[key] = now
        self._reported.move_to_end(key)
        if len(self._reported) > _MOST_REPORTED:
            self._reported.popitem(last=False)
        return True

    def _put(self, request: ReviewRequest, old: OldObject, reason: str, message: str) -> None:
        seen = KubeObject(
            uid=old.uid, name=old.name, namespace=old.namespace, resource_version=old.resource_version
        )  # fmt: skip
        try:
            self._queue.put_nowait(_WaitingEvent(request.served, seen, reason, message))
        except asyncio.QueueFull:
            self.dropped += 1


def _series_key(request: ReviewRequest) -> tuple[str, str, str]:
    return request.user_info.username, request.resource.plural_and_group, request.namespace


def _stopped(request: ReviewRequest, series: _CollectionSeries) -> str:
    rest = series.count - len(series.names)
    names = ", ".join(series.names) + (f" and {rest} more" if rest else "")
    user = request.user_info.username or "a client"
    return (
        f"a deletecollection of {request.resource.plural_and_group} by {user} ended at this object; deletions that "
        f"were allowed before it: {names}"
    )
