"""The job: the durable record of one target's removal, as an attempt sees it.

The order of the fields is the order in which `take` answers them, so that no names travel.
"""

import msgspec

from service.contract.errors import Undecodable

TAKEN_FIELDS = (
    "v", "deletion", "stage", "kind", "target", "strategy", "urgent", "data",
    "attempts", "waits", "held", "alone", "resume", "deadline", "first_error",
)  # fmt: skip


class Job(msgspec.Struct, frozen=True, array_like=True):
    """One taken job with its lease's fencing token. Times are milliseconds of the server's clock."""

    id: str
    fence: int
    v: int
    deletion: str
    stage: int
    kind: str
    target: str
    strategy: str
    urgent: int
    data: str
    attempts: int
    waits: int
    held: int
    alone: int
    resume: str
    deadline: int
    first_error: str

    @property
    def required(self) -> bool:
        return self.strategy == "required"


_rows = msgspec.msgpack.Decoder(type=Job, strict=False)


def decode_job(raw: msgspec.Raw) -> Job:
    """Read one row of a take's answer."""
    try:
        return _rows.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"the job's record can't be read: {error}") from None
