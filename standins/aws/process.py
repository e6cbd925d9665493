"""The AWS stand-in as a child process, with a client for its control API.
It has a process of its own so that moto does not run on the event loop that a benchmark measures."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from standins.aws.behaviour import AwsBehaviour, AwsFault
from standins.aws.journal import AwsJournalEntry
from standins.stand_in_process import StandInFailed, StandInProcess

_decode_entries = msgspec.json.Decoder(list[AwsJournalEntry]).decode


class LocalAwsFailed(StandInFailed):
    """The process ended, or did not report its address in time."""


def detached(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables of the real AWS: a process with this environment finds no account there."""
    rest = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**rest, **nothing, "AWS_EC2_METADATA_DISABLED": "true"}


class LocalAws(StandInProcess):
    """`async with LocalAws() as aws:`; clients connect to `aws.address`, in any region, with an access key that
    contains the twelve digits of an account (see `builder.credentials`)."""

    MODULE = "standins.aws"
    NAME = "the stand-in for AWS"
    FAILED = LocalAwsFailed

    def __init__(self, behaviour: AwsBehaviour | None = None, *, rate: float = 1.0, port: int = 0) -> None:
        self.behaviour = behaviour or AwsBehaviour()
        super().__init__(self.behaviour, rate=rate, port=port)

    def environment(self) -> Mapping[str, str]:
        return detached(os.environ)

    # ---- the control API

    async def set_faults(self, *faults: AwsFault) -> None:
        """Replaces all faults with these."""
        await self.behave(faults=faults)

    async def journal(self, since: int = 0) -> list[AwsJournalEntry]:
        """All entries from a number on, including requests of the builder."""
        return _decode_entries(await self._ask("GET", f"journal?since={since}"))

    async def requests(self, action: str = "", since: int = 0) -> Sequence[AwsJournalEntry]:
        """Requests except those of the builder, all or of one action (`ec2.DeleteSecurityGroup`)."""
        entries = await self.journal(since)
        return [one for one in entries if one.what == "request" and not one.setup and action in ("", one.action)]
