"""What a job remembers from turn to turn while something is in the way of its resource: rounds that came to nothing,
and what was written down. It travels in the job's `resume`; what can't be read there is begun anew."""

from typing import Final

import msgspec

VAIN: Final = 5
"""Rounds that may come to nothing, while AWS still shows what just went; then a person is told, and it is looked at
less and less."""


class Trail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`vain` begins anew when something was removed; `written` tells what the audit has of the next call."""

    vain: int = 0
    written: str = ""

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_trail: Final = msgspec.json.Decoder(Trail)


def trail_of(resume: str) -> Trail:
    try:
        return _trail.decode(resume) if resume else Trail()
    except msgspec.DecodeError:
        return Trail()
