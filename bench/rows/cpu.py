"""What a thousand no-op jobs cost the worker in processor time, user and system, over the drain.

Taken inside the worker process between the first and the last job, so start-up is not in it.
"""

from bench.rows.drain import DRAIN
from bench.rows.row import Row

ROWS = (
    Row(
        id="cpu",
        what="processor time of the worker process per 1,000 no-op jobs, user and system, without start-up",
        unit="s per 1,000 jobs",
        trial=DRAIN,
        figure="cpu_per_thousand",
        better="less",
    ),
)
