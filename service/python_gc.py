"""Thresholds of Python's cyclic garbage collector for long-running processes.
Workers create records by the thousand that hardly ever form cycles: with the defaults the collector took a twelfth of a
worker's time."""

import gc
from typing import Final

THRESHOLD: Final = 10_000
"""Net allocations after which the youngest generation is collected."""


def collect_rarely() -> None:
    """Freezes the objects that exist so far (modules, classes), and collects less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD, 20, 50)
