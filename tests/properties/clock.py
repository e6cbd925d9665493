"""Clock that stands still between calls and jumps, forwards and back, when a test moves it.

The scripts still read the server's time; the offset that they get removes the time that has passed."""

import time
from datetime import timedelta
from typing import Final

from service.engine.script_loading import lua_text

TICK = 150
"""Milliseconds between two calls: more than a call takes, so that time does not go back by itself."""

_SERVER_CLOCK: Final = "clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[2])"
GIVEN_CLOCK: Final = lua_text("_move").replace(_SERVER_CLOCK, "tonumber(ARGV[2])")
"""The opening of all scripts, with the offset taken for the time itself: however slow a call is, it sees no more."""


class JumpingClock:
    """`at` is the time that scripts see, in milliseconds; a call that takes long sees a little more."""

    def __init__(self, at: float | None = None, tick: int = TICK) -> None:
        self.at = time.time() * 1000 if at is None else at
        self._tick = timedelta(milliseconds=tick)

    def offset(self) -> timedelta:
        return timedelta(milliseconds=self.at - time.time() * 1000)

    def tick(self) -> None:
        self.jump(self._tick)

    def jump(self, by: timedelta) -> None:
        self.at += by / timedelta(milliseconds=1)


class GivenClock(JumpingClock):
    """For scripts that take the offset for the time itself."""

    def offset(self) -> timedelta:
        return timedelta(milliseconds=self.at)
