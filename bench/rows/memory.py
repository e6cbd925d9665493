"""How large the worker process grows while it drains.

The kernel's own high-water mark, children included.
"""

from bench.rows.drain import DRAIN
from bench.rows.row import Row

ROWS = (
    Row(
        id="memory",
        what="peak resident memory of the worker process and its children while it drains",
        unit="MiB",
        trial=DRAIN,
        figure="peak_mebibytes",
        better="less",
    ),
)
