"""The stand-in for AWS as a child process, with what tests and figures need of its control address.
It is a process of its own, so that moto's work is not done on the event loop of who measures."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from standins.aws.behaviour import Behaviour, Fault
from standins.aws.journal import Entry
from standins.stand_in import StandIn, StandInFailed

_decode_entries = msgspec.json.Decoder(list[Entry]).decode


class LocalAwsFailed(StandInFailed):
    """The process ended, or did not say its address in time."""


def detached(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what somebody has set up for the real AWS: a process that has this finds no account there."""
    rest = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**rest, **nothing, "AWS_EC2_METADATA_DISABLED": "true"}


class LocalAws(StandIn):
    """`async with LocalAws() as aws:`; then clients go to `aws.address`, in any region, with an access key that has the
    twelve digits of an account in it (see `world.credentials`)."""

    MODULE = "standins.aws"
    NAME = "the stand-in for AWS"
    FAILED = LocalAwsFailed

    def __init__(self, behaviour: Behaviour | None = None, *, rate: float = 1.0, port: int = 0) -> None:
        self.behaviour = behaviour or Behaviour()
        super().__init__(self.behaviour, rate=rate, port=port)

    def environment(self) -> Mapping[str, str]:
        return detached(os.environ)

    # ---- the control address

    async def trouble(self, *faults: Fault) -> None:
        """These faults from now on, and no others."""
        await self.behave(faults=faults)

    async def journal(self, since: int = 0) -> list[Entry]:
        """Everything that happened, from an entry's number on; also what the world's builder did."""
        return _decode_entries(await self._ask("GET", f"journal?since={since}"))

    async def requests(self, action: str = "", since: int = 0) -> Sequence[Entry]:
        """What was asked by others than the world's builder, all or one action (`ec2.DeleteSecurityGroup`)."""
        entries = await self.journal(since)
        return [one for one in entries if one.what == "request" and not one.setup and action in ("", one.action)]
