"""The two figures that a row about lateness shows: the median and the 99th percentile."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles


def percentiles(late: Sequence[float], times: float = 1.0) -> dict[str, float]:
    """Of seconds, in units of which `times` are a second."""
    cuts = quantiles(late, n=100, method="inclusive")
    return {"p50": cuts[49] * times, "p99": cuts[98] * times}
