"""State kept in a job's `resume` while something blocks its resource: idle rounds, and the rule that was recorded.
State that can't be decoded starts over."""

from typing import Final

import msgspec

MAX_IDLE_ROUNDS: Final = 5
"""Rounds without progress that are accepted while AWS still shows a deleted dependency; after that an operator is
asked, and checks become less frequent."""


class BlockedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`idle_rounds` restarts when something was removed; `recorded` is the digest of the rule in the audit that is
    revoked next."""

    idle_rounds: int = msgspec.field(default=0, name="vain")
    recorded: str = msgspec.field(default="", name="written")

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_decoder: Final = msgspec.json.Decoder(BlockedState)


def blocked_state_of(resume: str) -> BlockedState:
    try:
        return _decoder.decode(resume) if resume else BlockedState()
    except msgspec.DecodeError:
        return BlockedState()
