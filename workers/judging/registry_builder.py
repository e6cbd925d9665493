"""Builder of a worker's handler registry from settings: planner, consent, release and status reporter.
The composition root (`workers/app.py`) supplies the cluster clients, and the opened collectors and handlers."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace
from redis.exceptions import RedisError

from service.engine.batch_reads import texts
from service.engine.calls import ServerUnavailable
from service.engine.guard import DeletedObject, Guard
from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from service.engine.outcomes import deletion_outcomes, dropped_reason
from service.engine.restore_detection import RestoreDetector
from service.engine.withdrawal import withdraw
from service.kubernetes import KubernetesClient, RecentObjects
from service.settings import Settings
from service.sources.registry import source_named
from workers.handlers.collector import Collector, EmptyCollector, ObjectRef
from workers.handlers.protocol import Handler
from workers.handlers.registry import HandlerRegistry
from workers.handlers.release import ReleaseHandler
from workers.handlers.source_clusters import LeaseWitness, SourceClusters
from workers.handlers.status_reports import no_report
from workers.judging.consent import ConsentCheck
from workers.judging.deletion_records import DeletionRecords
from workers.judging.inspection import Inspector
from workers.judging.kept_marking import KeptMarkingStep
from workers.judging.planner import LivePlanner
from workers.reporting.status_reporter import StatusReporter

CLUSTERS = "clusters"
"""Redis hash in which the watcher stores the uid of each cluster name."""


def build_registry(
    settings: Settings,
    clusters: Mapping[str, KubernetesClient],
    installation: Installation,
    *,
    handlers: Iterable[Handler] = (),
    collectors: Iterable[Collector] = (),
    recent_objects: RecentObjects | None = None,
    source_clusters: SourceClusters | None = None,
    background_tasks: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> HandlerRegistry:
    """`clusters` are the connected clusters by name; it may be filled later, and until then deletions of the missing
    ones are held.

    `recent_objects` come from a watcher in the same process. `source_clusters` are those that the given handlers and
    collectors use. `background_tasks` run for as long as the worker does.
    """
    source_clusters = source_clusters or build_source_clusters(settings, clusters, installation)
    records, guard = DeletionRecords(installation), Guard(installation)
    reporter = StatusReporter(installation, settings.feedback, source_clusters, records)
    listens = settings.feedback.events or settings.feedback.conditions
    report = reporter.report if listens else no_report
    inspector = Inspector(settings, source_clusters, partial(Inventory, installation), recent_objects)
    every = {collector.name: collector for collector in (EmptyCollector(), *collectors)}
    kept_store = KeptStore(installation)
    planner = LivePlanner(
        inspector, settings.policy, guard, every, report, partial(dropped_reason, installation), kept_store.abandoned
    )
    consent = ConsentCheck(
        inspector, records, settings.policy, partial(withdraw, installation), collectors=every, report=report,
    )  # fmt: skip

    async def forget(ref: ObjectRef) -> str:
        inventory = Inventory(installation, ref.source)
        if source_named(settings.sources[ref.source].collector).swept:
            (ending,) = await deletion_outcomes(installation, [ref.deletion])
            known = await inventory.get(ref.uid) if ending.kept else None
            if known is not None:
                # Otherwise a sweep would find the kept resources without an owner, and delete them.
                await inventory.save({ref.uid: replace(known, kept=ending.kept)})
                return ending.kept
        await inventory.remove([ref.uid])
        return ""

    release = ReleaseHandler(
        settings.sources, settings.policy, source_clusters, records.find, forget, features=settings.features,
        report=report, keep=KeptMarkingStep(settings.sources, source_clusters, every, kept_store).keep,
    )  # fmt: skip
    return HandlerRegistry(
        [release, *handlers],
        dict.fromkeys(settings.sources, planner),
        consent=consent,
        listener=reporter if listens else None,
        closing=[consent.aclose, inspector.aclose, records.aclose, source_clusters.aclose],
        background_tasks=background_tasks,
    )


def build_source_clusters(
    settings: Settings,
    clusters: Mapping[str, KubernetesClient],
    installation: Installation,
    *,
    os_errors: bool = False,
) -> SourceClusters:
    """The clusters of all sources; each must have the uid that the settings or the watcher's records say. With
    `os_errors` a read of those records raises OSError if Redis can't be reached, for callers that know nothing of
    Redis."""
    key = installation.keys.of(0, CLUSTERS)

    async def remembered() -> dict[str, str]:
        try:
            return texts(await installation.caller.command("HGETALL", key))
        except (RedisError, ServerUnavailable) as error:
            if not os_errors:
                raise
            raise OSError(f"Redis can't be reached: {error}") from error

    async def witness(asked: LeaseWitness) -> str:
        return await RestoreDetector(
            installation, asked.cluster, asked.uid, settings.watch.namespace, asked.leases
        ).check()

    return SourceClusters(settings, clusters, remembered, witness)


def guard_check(guard: Guard, settings: Settings) -> Callable[[str, str, int], Awaitable[str]]:
    """Function of source, uid and deletion time in milliseconds: why the guard holds that object; empty if it does not.
    For collectors that inspect another object than the one being planned. The object counts as it does for its own
    deletion, and only once."""

    async def why(source: str, uid: str, since: int) -> str:
        (admission,) = await guard.admit(source, [DeletedObject(uid, since)], settings.sources[source].guard)
        return "" if admission.admitted else admission.reason

    return why
