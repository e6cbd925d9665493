"""The words that both sides share: events, targets, jobs, verdicts, limits, and how they are written down.

Nothing here does I/O, and nothing here imports the rest of Knell.
"""

from service.contract.errors import NewerVersion, Undecodable
from service.contract.events import Event, decode_event
from service.contract.jobs import Job, Record, decode_record, encode_record
from service.contract.limits import Draw, Feedback, Limit, Pause, Remaining, place_of
from service.contract.targets import FINALLY, Hold, Plan, Strategy, Target
from service.contract.verdicts import (
    LONGEST_KEPT,
    Blocked,
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
    "Gone",
    "Hold",
    "Job",
    "Left",
    "Limit",
    "NewerVersion",
    "Pause",
    "Pending",
    "Plan",
    "Record",
    "Refused",
    "Remaining",
    "Strategy",
    "Target",
    "Throttled",
    "Undecodable",
    "Verdict",
    "decode_event",
    "decode_record",
    "encode_record",
    "place_of",
]
