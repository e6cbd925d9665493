"""Types that the control side and the workers share: events, targets, jobs, verdicts and limits, with their codecs.

Begin with `events.py`, `targets.py`, `jobs.py` and `verdicts.py`, in the order of a deletion. Nothing here does I/O or
imports the rest of Knell.
"""

from service.contract.errors import NewerVersion, Undecodable
from service.contract.events import Event, decode_event
from service.contract.jobs import Job, JobRecord, decode_job_record, encode_job_record
from service.contract.limits import Draw, Feedback, Limit, Pause, Remaining, place_of
from service.contract.targets import FINALLY, Hold, Plan, Strategy, Target
from service.contract.verdicts import (
    LONGEST_KEPT,
    Blocked,
    Found,
    Gone,
    Left,
    Pending,
    Refused,
    Throttled,
    Verdict,
)
from service.contract.version import VERSION

__all__ = [
    "FINALLY",
    "LONGEST_KEPT",
    "VERSION",
    "Blocked",
    "Draw",
    "Event",
    "Feedback",
    "Found",
    "Gone",
    "Hold",
    "Job",
    "JobRecord",
    "Left",
    "Limit",
    "NewerVersion",
    "Pause",
    "Pending",
    "Plan",
    "Refused",
    "Remaining",
    "Strategy",
    "Target",
    "Throttled",
    "Undecodable",
    "Verdict",
    "decode_event",
    "decode_job_record",
    "encode_job_record",
    "place_of",
]
