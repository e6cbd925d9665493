"""Job: the durable record of one target's removal.

The record is flat JSON without default values. Times are milliseconds of the server's clock.
"""

import msgspec

from service.contract.errors import Undecodable
from service.contract.targets import Strategy
from service.contract.version import VERSION


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record. `state` is set only when the job has ended or was set aside. `held` (1) needs an operator,
    `waiting` (1) continues once something else has ended. A job that is gone and `absent` (1) had no resource to
    remove.

    The version is always written, and first: the script `take` reads it without decoding the rest.
    """

    v: int
    stage: int
    lane: str
    kind: str
    target: str
    strategy: Strategy = "required"
    urgent: int = 1
    data: str = ""
    incarnation: str = ""
    state: str = ""
    verdict: str = ""
    detail: str = ""
    attempts: int = 0
    waits: int = 0
    held: int = 0
    waiting: int = 0
    absent: int = 0
    alone: int = 0
    kills: int = 0
    fallen: int = 0
    suspect: str = ""
    resume: str = ""
    deadline: int = 0
    first_error: str = ""
    last_error: str = ""
    last_at: int = 0
    due: int = 0

    @property
    def shown(self) -> str:
        """The index that lists the job: `held`, `waiting`, or none."""
        return "held" if self.held else "waiting" if self.waiting else ""


class Job(msgspec.Struct, frozen=True):
    """A leased job with its fencing token, as passed to an attempt."""

    id: str
    fence: int
    record: JobRecord

    @property
    def deletion(self) -> str:
        return self.id.rpartition("#")[0]

    @property
    def plan(self) -> int:
        """The number of the plan that it belongs to."""
        return int(self.id.rpartition("#")[2].partition(".")[0])

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def target(self) -> str:
        return self.record.target

    @property
    def incarnation(self) -> str:
        return self.record.incarnation

    @property
    def data(self) -> str:
        return self.record.data

    @property
    def resume(self) -> str:
        return self.record.resume

    @property
    def required(self) -> bool:
        return self.record.strategy == "required"


_decode = msgspec.json.Decoder(type=JobRecord, strict=False).decode
_encode = msgspec.json.Encoder().encode


def decode_job_record(text: str | bytes) -> JobRecord:
    """Raises Undecodable."""
    try:
        record = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the job's record can't be read: {error}") from None
    if record.v > VERSION:
        raise Undecodable(f"the job's record has version {record.v}, newer than this process knows")
    return record


def encode_job_record(record: JobRecord) -> str:
    return _encode(record).decode()
