"""Prometheus metrics of the admission webhook: reviews, denials by reason, latency, and when its certificate expires.
What only the admission policies judge is in the API server's own metrics."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from service.admission.judgement import Denial

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class AdmissionMetrics:
    """Since the process started."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._denials: Counter[tuple[str, str]] = Counter()
        self._malformed = 0
        self._durations = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0

    def answered(self, about: str, denial: Denial | None, seconds: float) -> None:
        """`about` is what is to be deleted: namespace, definition or object."""
        self._requests[about] += 1
        if denial is not None:
            self._denials[about, denial.why] += 1
        self._durations[bisect_left(_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def malformed(self) -> None:
        self._malformed += 1

    def families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "knell_admission_requests", "Reviews answered, by what is to be deleted", labels=["about"]
        )
        for about, number in sorted(self._requests.items()):
            requests.add_metric([about], number)
        yield requests
        denials = CounterMetricFamily(
            "knell_admission_denials",
            "Deletions denied, by what is to be deleted and why: protected, invalid, unknown",
            labels=["about", "reason"],
        )
        for (about, why), number in sorted(self._denials.items()):
            denials.add_metric([about, why], number)
        yield denials
        yield CounterMetricFamily(
            "knell_admission_malformed", "Requests that were no reviews and got a 400", self._malformed
        )
        buckets, total = list[tuple[str, float]](), 0
        for bound, number in zip((*map(str, _BUCKETS), "+Inf"), self._durations, strict=True):
            total += number
            buckets.append((bound, total))
        yield HistogramMetricFamily(
            "knell_admission_seconds", "How long reviews took", buckets=buckets, sum_value=self._seconds
        )


def state_families(expires: datetime | None, cached: bool, reads: int, dropped: int) -> Iterator[Metric]:
    """Of the parts that reviews need."""
    if expires is not None:
        yield GaugeMetricFamily(
            "knell_admission_certificate_expires_seconds",
            "When the certificate expires, in seconds since the epoch",
            expires.timestamp(),
        )
    yield GaugeMetricFamily(
        "knell_admission_namespaces_cached", "Whether Namespaces are answered from the watch", int(cached)
    )
    yield CounterMetricFamily(
        "knell_admission_namespace_reads", "Namespaces that the API server was asked about", reads
    )
    yield CounterMetricFamily("knell_admission_events_dropped", "Events not posted because too many waited", dropped)
