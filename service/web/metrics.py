"""Prometheus metrics (`/metrics`): counters of this process, and statistics that all processes share in Redis.
To add a metric: one of a worker is counted in `WorkerCounters` (workers/runtime/counters.py), copied in
service/cli/work.py, and exported by `ProcessCounts` and `_process_metrics` here; one of the `stats` hashes goes into
`SHARD_GAUGES` here or `COUNTERS` of shard_stats.py; one of a source is counted in `SourceCounters`
(service/watching/assignment.py), copied in service/watching/watcher.py, and exported by watch_metrics.py. Every process
exports the same shared statistics, so dashboards take their maximum and not their sum."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from service.web.redis_probe import RedisProbe
from service.web.shard_stats import ShardStats, read_shard_stats

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MAX_LANES: Final = 100
OTHERS: Final = "(others)"
"""Label of the sum over the lanes beyond MAX_LANES; no real lane has this name."""

SHARD_GAUGES: Final = {
    "due": ("knell_due_jobs", "Jobs whose time has come"),
    "queued": ("knell_queued_jobs", "Jobs in lanes, due or not"),
    "leased": ("knell_leased_jobs", "Jobs in the hands of workers"),
    "held": ("knell_held", "Jobs, deletions and events that need a person"),
    "waiting": ("knell_waiting", "Jobs and deletions that wait by themselves, and go on without a person"),
    "aside": ("knell_dead_jobs", "Jobs given up or set aside"),
    "newer": ("knell_newer", "Records of a newer version, parked for a process that knows it"),
    "open": ("knell_open_deletions", "Deletions that are not finished"),
    "alone": ("knell_alone_jobs", "Jobs to be tried alone, because a worker died with them"),
    "events": ("knell_events", "Events on the stream that are not planned yet"),
    "paused": ("knell_paused", "Pauses by hand in force"),
    "guard_tripped": ("knell_guard_tripped", "Sources whose guard holds new deletions until a person releases it"),
}


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """Counts since the process started. `settled` has attempts by outcome, without late settlements."""

    taken: int = 0
    settled: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    planned: int = 0
    held: int = 0
    in_hand: int = 0


class Metrics:
    """`more` returns metric families that only some processes have. A process that needs no Redis has no probe."""

    def __init__(
        self,
        probe: RedisProbe | None,
        counts: Callable[[], ProcessCounts] = ProcessCounts,
        more: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        self._probe, self._counts, self._more = probe, counts, more
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def page(self) -> bytes:
        """The response to a scrape. While Redis can't be reached it has only the metrics of this process."""
        families = [*_process_metrics(self._counts()), *self._more()]
        if (probe := self._probe) is not None:
            families += _shard_metrics(await probe.read(lambda: read_shard_stats(probe.client, probe.keys)))
        return generate_latest(self._process) + generate_latest(_ScrapeRegistry(families))


class _ScrapeRegistry(CollectorRegistry):
    """Metric families of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _process_metrics(counts: ProcessCounts) -> Iterator[Metric]:
    try:
        release = version("knell")
    except PackageNotFoundError:
        release = "unknown"
    yield InfoMetricFamily("knell_build", "Which Knell this is", value={"version": release})
    yield CounterMetricFamily("knell_process_taken", "Jobs that this process took", counts.taken)
    settled = CounterMetricFamily(
        "knell_process_settled", "Attempts that this process settled, by outcome", labels=["outcome"]
    )
    for outcome, number in sorted(counts.settled.items()):
        settled.add_metric([outcome], number)
    yield settled
    throttled = counts.settled.get("throttled", 0)
    yield CounterMetricFamily("knell_process_throttled", "Attempts that a provider throttled", throttled)
    yield CounterMetricFamily("knell_process_late", "Settlements that came too late and changed nothing", counts.late)
    yield CounterMetricFamily("knell_process_planned", "Deletions that this process planned", counts.planned)
    yield CounterMetricFamily("knell_process_held", "Events that this process kept for a person", counts.held)
    yield GaugeMetricFamily("knell_process_in_hand", "Jobs in the hands of this process", counts.in_hand)


def _shard_metrics(shards: list[ShardStats] | None) -> Iterator[Metric]:
    yield GaugeMetricFamily("knell_redis_up", "Whether every shard's server answered", int(shards is not None))
    if shards is None:
        return
    for name, (metric, words) in SHARD_GAUGES.items():
        yield _by_shard(metric, words, [shard.gauges[name] for shard in shards])
    yield _by_shard("knell_oldest_due_seconds", "For how long the oldest due job has been due",
                    [shard.oldest_ms / 1000 for shard in shards])  # fmt: skip
    yield _by_shard("knell_events_lag", "Events that no planner has been given yet", [one.lag for one in shards])
    yield _by_shard("knell_events_pending", "Events that planners are at", [one.pending for one in shards])
    yield _by_shard("knell_relist_wanted", "Whether writes may have been lost and a relist is asked for",
                    [int(shard.relist) for shard in shards])  # fmt: skip
    age = GaugeMetricFamily("knell_survey_age_seconds", "Age of the shard's numbers", labels=["shard"])
    for number, shard in enumerate(shards):
        if shard.surveyed_ms is not None:
            age.add_metric([str(number)], shard.surveyed_ms / 1000)
    yield age
    outcomes = CounterMetricFamily(
        "knell_moves",
        "What happened to events, jobs and deletions, over all processes",
        labels=["shard", "what"],
    )
    for number, shard in enumerate(shards):
        for name, value in shard.counters.items():
            outcomes.add_metric([str(number), name], value)
    yield outcomes
    yield from _guard_metrics(shards)
    yield from _lane_metrics(shards)


def _by_shard(metric: str, words: str, values: Iterable[float]) -> Metric:
    family = GaugeMetricFamily(metric, words, labels=["shard"])
    for number, value in enumerate(values):
        family.add_metric([str(number)], value)
    return family


def _guard_metrics(shards: Iterable[ShardStats]) -> Iterator[Metric]:
    """Labelled by source: these come from the settings, so there are few."""
    held = GaugeMetricFamily("knell_guard_held", "Deletions of the source that its guard holds", labels=["source"])
    counted = GaugeMetricFamily(
        "knell_guard_counted",
        "Deletions of the source in its guard's window, when it was last asked",
        labels=["source"],
    )
    for source, numbers in sorted((one for shard in shards for one in shard.guards.items()), key=lambda one: one[0]):
        held.add_metric([source], numbers.get("held", 0.0))
        counted.add_metric([source], numbers.get("counted", 0.0))
    yield held
    yield counted


def _lane_metrics(shards: Iterable[ShardStats]) -> Iterator[Metric]:
    """The busiest lanes by name, the rest as one sum, so that the number of label values is bounded."""
    sums: dict[str, list[float]] = {}
    for shard in shards:
        for lane, numbers in shard.lanes.items():
            known = sums.setdefault(lane, [0.0, 0.0])
            known[0] += numbers.get("due", 0.0)
            known[1] += numbers.get("leased", 0.0)
    ranked = sorted(sums.items(), key=lambda one: (-sum(one[1]), one[0]))
    shown = ranked[:MAX_LANES]
    if len(ranked) > MAX_LANES:
        rest = [sum(one[1][at] for one in ranked[MAX_LANES:]) for at in (0, 1)]
        shown.append((OTHERS, rest))
    due = GaugeMetricFamily("knell_lane_due_jobs", "Jobs of the lane whose time has come", labels=["lane"])
    leased = GaugeMetricFamily("knell_lane_leased_jobs", "Jobs of the lane in hand", labels=["lane"])
    for lane, (lane_due, lane_leased) in shown:
        due.add_metric([lane], lane_due)
        leased.add_metric([lane], lane_leased)
    yield GaugeMetricFamily("knell_lanes", "Lanes with numbers", len(ranked))
    yield due
    yield leased
