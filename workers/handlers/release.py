"""Release handler: the last job of every deletion, run when all required targets are proven absent. It removes our
finalizer from the object, or an observed object from the inventory. The object counts as released once the API server
has confirmed the patch."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from service.contract import Draw, Gone, Job, Limit, Pending, Refused, Throttled, Verdict
from service.contract.targets import RELEASE
from service.kubernetes import Conflict, Forbidden, Invalid, KubeObject, NotFound, NotServed, TooMany, Unauthorized
from service.kubernetes.finalizers import finalizer_removal, has_finalizer
from service.policy.scope import dry_run_decision, object_pause_decision, pause_decision
from service.policy.stale_finalizers import stale_finalizer, stale_finalizer_reason
from service.settings import FeatureSettings, PolicySettings, SourceSettings
from service.sources.registry import source_named
from workers.handlers.batch_adapter import BatchAdapter
from workers.handlers.collector import ObjectRef
from workers.handlers.protocol import Batch, NotCleared
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.handlers.status_reports import DONE, ReportStatus, StatusReport, no_report

LIMIT: Final = Limit.bucket("releases", capacity=2000, rate=500)
"""Limit per cluster, which an API server can bear. Settings may change it (limits.releases)."""

AT_ONCE: Final = 24
"""Concurrent releases: consent checks must not queue behind many of them."""

TRIES: Final = 8
CONFLICT: Final = timedelta(milliseconds=500)
"""How often a conflicting patch is retried at once, and the delay before the next attempt after that."""

FindRefs = Callable[[Collection[str]], Awaitable[Mapping[str, ObjectRef]]]
Forget = Callable[[ObjectRef], Awaitable[str]]
MarkKept = Callable[[ObjectRef, str], Awaitable[Pending | None]]
"""Tags and records kept resources. Returns Pending, with the job's `resume`, or None if nothing is left to do."""


class ReleaseHandler:
    """`find_refs` returns the objects of deletions. `forget` removes an observed object from the inventory, or returns
    why its resources stay. `keep` is called before the release if resources stay on purpose."""

    kind = RELEASE

    def __init__(
        self,
        sources: Mapping[str, SourceSettings],
        policy: PolicySettings,
        clusters: SourceClusters,
        find_refs: FindRefs,
        forget: Forget,
        *,
        features: FeatureSettings,
        report: ReportStatus = no_report,
        keep: MarkKept | None = None,
    ) -> None:
        self._sources, self._policy, self._features, self._clusters = dict(sources), policy, features, clusters
        self._keep = keep
        self._find_refs, self._forget, self._report = find_refs, forget, report
        self._slots = asyncio.Semaphore(AT_ONCE)

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return (Draw(LIMIT),) if lane.endswith("/" + RELEASE) else None

    async def attempt(self, batch: Batch) -> AsyncIterator[tuple[Job, Verdict | Exception]]:
        """Once this stage is open, a missing finalizer or uid means released, so repeating it after a crash is safe."""
        refs = await self._find_refs([job.deletion for job in batch.jobs])
        await batch.clear(*batch.jobs)
        async for job, verdict in BatchAdapter(_ReleaseAttempts(self, refs)).attempt(batch):
            yield job, verdict

    async def release(self, ref: ObjectRef, resume: str = "") -> Verdict:
        """Raises ClusterError if the API server did not respond (a failed attempt), and NotCleared if the object may
        not be released now, or not by this process (shown as held)."""
        source = self._sources.get(ref.source)
        if source is None:
            raise _held(ref, f"source {ref.source!r} is not declared any more; declare it, or `knell uninstall`")
        cluster = self._clusters.of(ref.source)
        if cluster is None:
            raise _held(ref, f"this process has no way to the cluster of source {ref.source}")
        try:
            # First: once the object is gone, the owner of the kept resources can't be determined any more.
            if self._keep is not None and ref.kept and (first := await self._keep(ref, resume)) is not None:
                return first
            if source.mode == "observe":
                return await self._forget_observed(ref, source, cluster)
            async with self._slots:
                verdict = await self._remove_finalizer(ref, source, cluster)
            if isinstance(verdict, Gone) and source_named(source.collector).remembers:
                await self._forget(ref)
            return verdict
        except TooMany as error:
            return Throttled(error.retry_after, str(error))
        except (Forbidden, Unauthorized, Invalid) as error:
            return Refused(str(error))

    async def _forget_observed(self, ref: ObjectRef, source: SourceSettings, cluster: SourceCluster) -> Verdict:
        stop = pause_decision(self._policy, source, self._features)
        if stop is not None:
            raise _held(ref, f"{stop.kind}: {stop.reason}")
        if await self._has_our_finalizer(ref, source, cluster):
            # Its source had another mode when it was planned. Nothing is done while the object has our finalizer.
            raise _held(
                ref,
                f"{ref.label} is held back by our finalizer, but source {ref.source} only observes; set its mode "
                f"to finalizer until it is released",
            )
        kept = await self._forget(ref)
        text = (
            f"the inventory remembers that something of it stays ({kept})" if kept else "the inventory has forgotten it"
        )
        return self._done(ref, None, f"released: {text}")

    async def _has_our_finalizer(self, ref: ObjectRef, source: SourceSettings, cluster: SourceCluster) -> bool:
        try:
            live = await cluster.get(ref.resource, ref.namespace, ref.name)
        except NotServed:
            return False
        return (
            live is not None and live.uid == ref.uid and has_finalizer(live, source_named(source.collector).finalizer)
        )

    async def _remove_finalizer(self, ref: ObjectRef, source: SourceSettings, cluster: SourceCluster) -> Verdict:
        """A recent read is as good as a new one: the patch names its resource version, so any change since is a
        conflict, after which everything is read again."""
        finalizer = source_named(source.collector).finalizer
        live = cluster.take_recent(ref.uid)
        for _ in range(TRIES):
            marks = cluster.marks(ref.namespace) if ref.namespace else None
            live = live or await cluster.get(ref.resource, ref.namespace, ref.name, metadata_only=True)
            ours = live is not None and live.uid == ref.uid
            # An object's uid proves the cluster. A missing object may be missing because this is another cluster.
            fault = await cluster.fault(ref.cluster, fresh=not ours)
            if fault is not None:
                raise _held(ref, fault)
            patch = finalizer_removal(live, finalizer) if live is not None and ours else None
            if live is not None and ours and patch is None:
                self._check_stale_finalizer(ref, live, finalizer)
            if live is None or patch is None:
                return self._done(ref, None, "released: our finalizer was off already")
            namespace = await asyncio.shield(marks) if marks is not None else {}
            self._check_allowed(ref, live, namespace, source)
            if await self._patch(ref, cluster, patch):
                return self._done(ref, live, "released")
            live = None
        return Pending(CONFLICT, f"{ref.label} is changed by others all the time")

    def _check_stale_finalizer(self, ref: ObjectRef, live: KubeObject, finalizer: str) -> None:
        """Without its source's finalizer it is released, unless it has the finalizer of another collector."""
        if other := stale_finalizer(live.finalizers, ref.resource, self._sources.values()):
            raise _held(ref, f"{ref.label}: {stale_finalizer_reason(other, finalizer)}")

    def _check_allowed(
        self, ref: ObjectRef, live: KubeObject, namespace: Mapping[str, str], source: SourceSettings
    ) -> None:
        if not live.going:
            raise _held(ref, f"{ref.label} lives: it has no deletionTimestamp, and keeps our finalizer")
        stop = pause_decision(self._policy, source, self._features) or object_pause_decision(live.annotations, source)
        if stop is None or stop.kind == "retain":
            # An object that moves to another cluster is released; its resources are not touched.
            stop = dry_run_decision(live.annotations, namespace, self._policy, source)
        if stop is not None:
            raise _held(ref, f"{stop.kind}: {stop.reason}")

    async def _patch(self, ref: ObjectRef, cluster: SourceCluster, patch: dict[str, Any]) -> bool:
        """False after a conflict with another writer."""
        try:
            await cluster.on(
                ref.resource,
                lambda served: cluster.client.patch(served, ref.namespace, ref.name, patch, metadata_only=True),
            )
        except (Conflict, NotFound):
            return False
        return True

    def _done(self, ref: ObjectRef, live: KubeObject | None, text: str) -> Verdict:
        self._report(StatusReport(ref, DONE, "", live))
        return Gone(text)


def _held(ref: ObjectRef, reason: str) -> NotCleared:
    return NotCleared(reason, refused=True, deletion=ref.deletion)


class _ReleaseAttempts:
    """Releases the objects of one batch, one job at a time."""

    kind = RELEASE

    def __init__(self, release: ReleaseHandler, refs: Mapping[str, ObjectRef]) -> None:
        self._release, self._refs = release, refs

    def draws(self, lane: str) -> Sequence[Draw] | None:
        return self._release.draws(lane)

    async def attempt_one(self, job: Job, batch: Batch) -> Verdict:
        del batch
        ref = self._refs.get(job.deletion)
        if ref is None:
            raise LookupError("the deletion's record can't be read, so its object is not known")
        return await self._release.release(ref, job.resume)
