"""The job: the durable record of one target's removal.

The record is flat JSON that leaves out what goes without saying: most jobs are urgent and required, and none has
failed yet. Times are milliseconds of the server's clock.
"""

import msgspec

from service.contract.errors import Undecodable
from service.contract.targets import Strategy
from service.contract.version import VERSION


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a job. `state` is there only when it has ended or is set aside. `held` (1) needs a person,
    `waiting` (1) goes on by itself once something else has. One that is gone and `absent` (1) was never there.

    The version is written first and always: `take` reads it without decoding the rest.
    """

    v: int
    stage: int
    lane: str
    kind: str
    target: str
    strategy: Strategy = "required"
    urgent: int = 1
    data: str = ""
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
        """The index that shows it, if any does."""
        return "held" if self.held else "waiting" if self.waiting else ""


class Job(msgspec.Struct, frozen=True):
    """One taken job with its lease's fencing token, as an attempt sees it."""

    id: str
    fence: int
    record: Record

    @property
    def deletion(self) -> str:
        return self.id.rpartition("#")[0]

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def target(self) -> str:
        return self.record.target

    @property
    def data(self) -> str:
        return self.record.data

    @property
    def resume(self) -> str:
        return self.record.resume

    @property
    def required(self) -> bool:
        return self.record.strategy == "required"


_decode = msgspec.json.Decoder(type=Record, strict=False).decode
_encode = msgspec.json.Encoder().encode


def decode_record(text: str | bytes) -> Record:
    """Read a stored record, or say in one sentence what is wrong with it."""
    try:
        record = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the job's record can't be read: {error}") from None
    if record.v > VERSION:
        raise Undecodable(f"the job's record has version {record.v}, newer than this process knows")
    return record


def encode_record(record: Record) -> str:
    return _encode(record).decode()
