"""The release: the last job of every deletion, when all its required targets are proven gone.
Our finalizer is taken off the object, or an observed one is forgotten; it is released once the API server confirmed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import structlog

from service.contract import Draw, Gone, Job, Limit, Pending, Refused, Throttled, Verdict
from service.contract.targets import RELEASE
from service.contract.traits import traits_of
from service.kubernetes import Conflict, Forbidden, Invalid, Live, NotFound, NotServed, TooMany, Unauthorized
from service.kubernetes.finalizers import marked, unmarking
from service.policy.finalizers import astray, astray_words
from service.policy.scope import dry_run, still, stopped
from service.settings import FeatureSettings, PolicySettings, SourceSettings
from workers.handlers.notes import DONE, Note, Tell, silent
from workers.handlers.objects import About
from workers.handlers.places import Place, Places
from workers.handlers.protocol import Batch, NotCleared
from workers.handlers.single import Single

log = structlog.get_logger(__name__)

LIMIT: Final = Limit.bucket("releases", capacity=2000, rate=500)
"""Of one cluster: an API server bears it, and a burst is paced. Settings may change it (limits.releases)."""

AT_ONCE: Final = 24
"""Objects that are released side by side: what is judged meanwhile shall not have to queue behind them."""

TRIES: Final = 8
CONFLICT: Final = timedelta(milliseconds=500)
"""How often an object that others write is tried at once, and when it is tried again after that."""

Known = Callable[[Collection[str]], Awaitable[Mapping[str, About]]]
Forget = Callable[[About], Awaitable[str]]
Keep = Callable[[About, str], Awaitable[Pending | None]]
"""Marks and remembers what stays; answers what to come back for, as the job's `resume`, or None where all is done."""


class Release:
    """The release where there is no cluster to ask: it is recorded, and that is all."""

    kind = RELEASE

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return () if lane.endswith("/" + RELEASE) else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        await batch.clear(*batch.jobs)
        log.info("released", count=len(batch.jobs), deletions=" ".join(job.deletion for job in batch.jobs))
        for job in batch.jobs:
            yield job, Gone("released")


class LiveRelease:
    """`known` tells which objects deletions are about, `forget` drops an observed one from the inventory,
    and says why what it owned stays, where it does; `keep` comes before either where something stays on purpose;
    `detached` are sources without a cluster, whose release is only recorded."""

    kind = RELEASE

    def __init__(
        self,
        sources: Mapping[str, SourceSettings],
        policy: PolicySettings,
        places: Places,
        known: Known,
        forget: Forget,
        *,
        features: FeatureSettings,
        detached: Collection[str] = (),
        tell: Tell = silent,
        keep: Keep | None = None,
    ) -> None:
        self._sources, self._policy, self._features, self._places = dict(sources), policy, features, places
        self._keep = keep
        self._known, self._forget, self._detached, self._tell = known, forget, frozenset(detached), tell
        self._slots = asyncio.Semaphore(AT_ONCE)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return (Draw(LIMIT),) if lane.endswith("/" + RELEASE) else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        """With this stage open a missing finalizer or uid means released, so a crash in between repeats safely."""
        known = await self._known([job.deletion for job in batch.jobs])
        await batch.clear(*batch.jobs)
        async for job, verdict in Single(_Releasing(self, known)).attempt(batch):
            yield job, verdict

    async def release(self, about: About, resume: str = "") -> Verdict:
        """Raises ClusterError where the API server gave no answer: the attempt failed; and NotCleared where the object
        may not be let go, or not by this process: that is shown, and may pass."""
        if about.source in self._detached:
            return Gone("released")
        source = self._sources.get(about.source)
        if source is None:
            raise _held(about, f"source {about.source!r} is not declared any more; declare it, or `knell uninstall`")
        place = self._places.of(about.source)
        if place is None:
            raise _held(about, f"this process has no way to the cluster of source {about.source}")
        try:
            # First of all: once the object is gone, nothing tells any more whose it was that stays.
            if self._keep is not None and about.kept and (first := await self._keep(about, resume)) is not None:
                return first
            if source.mode == "observe":
                return await self._drop(about, source, place)
            async with self._slots:
                return await self._unmark(about, source, place)
        except TooMany as error:
            return Throttled(error.retry_after, str(error))
        except (Forbidden, Unauthorized, Invalid) as error:
            return Refused(str(error))

    async def _drop(self, about: About, source: SourceSettings, place: Place) -> Verdict:
        stop = stopped(self._policy, source, self._features)
        if stop is not None:
            raise _held(about, f"{stop.kind}: {stop.reason}")
        if await self._is_held_back(about, source, place):
            # Its source had another mode when it was planned. Nothing is done while the object still waits for us.
            raise _held(
                about,
                f"{about.object} is held back by our finalizer, but source {about.source} only observes; set its mode "
                f"to finalizer until it is released",
            )
        kept = await self._forget(about)
        words = (
            f"the inventory remembers that something of it stays ({kept})" if kept else "the inventory has forgotten it"
        )
        return self._done(about, None, f"released: {words}")

    async def _is_held_back(self, about: About, source: SourceSettings, place: Place) -> bool:
        try:
            live = await place.get(about.resource, about.namespace, about.name)
        except NotServed:
            return False
        return live is not None and live.uid == about.uid and marked(live, traits_of(source.collector).finalizer)

    async def _unmark(self, about: About, source: SourceSettings, place: Place) -> Verdict:
        """What was read lately serves as well as a fresh reading: the patch names its resource version, so that any
        change since is a conflict, after which everything is looked at again."""
        finalizer = traits_of(source.collector).finalizer
        live = place.lately(about.uid)
        for _ in range(TRIES):
            marks = place.marks(about.namespace) if about.namespace else None
            live = live or await place.get(about.resource, about.namespace, about.name, metadata_only=True)
            ours = live is not None and live.uid == about.uid
            # The uid proves the cluster; what is missing may be missing because this is another one.
            fault = await place.fault(about.cluster, fresh=not ours)
            if fault is not None:
                raise _held(about, fault)
            patch = unmarking(live, finalizer) if live is not None and ours else None
            if live is not None and ours and patch is None:
                self._not_astray(about, live, finalizer)
            if live is None or patch is None:
                return self._done(about, None, "released: our finalizer was off already")
            namespace = await asyncio.shield(marks) if marks is not None else {}
            self._may(about, live, namespace, source)
            if await self._patched(about, place, patch):
                return self._done(about, live, "released")
            live = None
        return Pending(CONFLICT, f"{about.object} is changed by others all the time")

    def _not_astray(self, about: About, live: Live, finalizer: str) -> None:
        """With its source's finalizer off it is released, unless it was marked with that of another collector."""
        if other := astray(live.finalizers, about.resource, self._sources.values()):
            raise _held(about, f"{about.object}: {astray_words(other, finalizer)}")

    def _may(self, about: About, live: Live, namespace: Mapping[str, str], source: SourceSettings) -> None:
        if not live.going:
            raise _held(about, f"{about.object} lives: it has no deletionTimestamp, and keeps our finalizer")
        stop = stopped(self._policy, source, self._features) or still(live.annotations, source)
        if stop is None or stop.kind == "retain":
            # What moves to another cluster is let go, and nothing of it is touched by that.
            stop = dry_run(live.annotations, namespace, self._policy, source)
        if stop is not None:
            raise _held(about, f"{stop.kind}: {stop.reason}")

    async def _patched(self, about: About, place: Place, patch: dict[str, Any]) -> bool:
        """False where somebody else was first."""
        try:
            await place.on(
                about.resource,
                lambda served: place.cluster.patch(served, about.namespace, about.name, patch, metadata_only=True),
            )
        except (Conflict, NotFound):
            return False
        return True

    def _done(self, about: About, live: Live | None, words: str) -> Verdict:
        self._tell(Note(about, DONE, "", live))
        return Gone(words)


def _held(about: About, reason: str) -> NotCleared:
    return NotCleared(reason, refused=True, deletion=about.deletion)


class _Releasing:
    """The attempts of one batch, with what is known of their objects."""

    kind = RELEASE

    def __init__(self, release: LiveRelease, known: Mapping[str, About]) -> None:
        self._release, self._known = release, known

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._release.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        del batch
        about = self._known.get(job.deletion)
        if about is None:
            raise LookupError("the deletion's record can't be read, so its object is not known")
        return await self._release.release(about, job.resume)
