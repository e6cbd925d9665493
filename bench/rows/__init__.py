"""The rows of the report, one file per subject, in the order in which they are run and shown.

A file exports `ROWS`; what it needs to know of a contender is in the contender's protocol.
"""

from bench.rows import (
    ack_clean,
    admission,
    aws_clean,
    aws_drain,
    azure_clean,
    azure_reservation,
    commands,
    cpu,
    drain,
    enqueue,
    killed,
    lateness,
    memory,
    parked,
    quota,
    release,
    takeover,
    watch_memory,
)
from bench.rows.row import Row

ROWS: tuple[Row, ...] = (
    *enqueue.ROWS,
    *drain.ROWS,
    *cpu.ROWS,
    *commands.ROWS,
    *memory.ROWS,
    *lateness.ROWS,
    *parked.ROWS,
    *quota.ROWS,
    *killed.ROWS,
    *release.ROWS,
    *takeover.ROWS,
    *admission.ROWS,
    *aws_clean.ROWS,
    *aws_drain.ROWS,
    *ack_clean.ROWS,
    *azure_clean.ROWS,
    *azure_reservation.ROWS,
    # Last: what it leaves in the API server would weigh on all others.
    *watch_memory.ROWS,
)

__all__ = ["ROWS", "Row"]
