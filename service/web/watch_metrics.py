"""Prometheus metrics of the watch side of this process, by source and share, and by cluster.
A share that another replica watches is exported without a Lease, so that sums over replicas are right."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class SourceStats:
    """One share of one source. Counts are since the process started; `owned` is the current number of objects."""

    source: str
    share: int = 0
    held: bool = False
    problem: bool = False
    owned: int = 0
    listed: int = 0
    events: int = 0
    published: int = 0
    marked: int = 0
    relists: int = 0


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """`restored`: it seems to be restored from a backup, and waits until an operator accepts that."""

    name: str
    up: bool
    restored: bool = False


_GAUGES: Final[tuple[tuple[str, str, Callable[[SourceStats], float]], ...]] = (
    ("knell_source_lease_held", "Whether this process watches the share", lambda one: one.held),
    ("knell_source_problem", "Whether something keeps the share from being watched", lambda one: one.problem),
    ("knell_source_objects", "Objects of the share that are ours to watch", lambda one: one.owned),
)
_COUNTERS: Final[tuple[tuple[str, str, Callable[[SourceStats], float]], ...]] = (
    ("knell_source_listed", "Objects that lists brought", lambda one: one.listed),
    ("knell_source_events", "Changes that came by the watch", lambda one: one.events),
    ("knell_source_published", "Deletions that were published", lambda one: one.published),
    ("knell_source_marked", "Objects that got the finalizer", lambda one: one.marked),
    ("knell_source_relists", "Complete lists that were made", lambda one: one.relists),
)


def watch_metric_families(sources: Iterable[SourceStats], clusters: Iterable[ClusterStats]) -> Iterator[Metric]:
    known = list(sources)
    for name, words, value in _GAUGES:
        gauge = GaugeMetricFamily(name, words, labels=["source", "share"])
        for one in known:
            gauge.add_metric([one.source, str(one.share)], float(value(one)))
        yield gauge
    for name, words, value in _COUNTERS:
        counter = CounterMetricFamily(name, words, labels=["source", "share"])
        for one in known:
            counter.add_metric([one.source, str(one.share)], float(value(one)))
        yield counter
    up = GaugeMetricFamily("knell_cluster_up", "Whether the cluster answers and is the right one", labels=["cluster"])
    restored = GaugeMetricFamily(
        "knell_cluster_restored",
        "Whether the cluster seems to be restored from a backup, so that nothing missing in it counts as deleted",
        labels=["cluster"],
    )
    for cluster in clusters:
        up.add_metric([cluster.name], float(cluster.up))
        restored.add_metric([cluster.name], float(cluster.restored))
    yield up
    yield restored
