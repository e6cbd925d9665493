"""Process of a contender that works on a cloud, and the wait until it has done something.

A peer's program ends by itself when it is done; Knell keeps running, and its records say when nothing is left to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from bench.contenders.program import Program

_LOOK: Final = 0.5


class CloudProcess(Protocol):
    def check(self) -> None:
        """Raises ContenderFailedError if its process has failed."""

    def over(self) -> bool:
        """Whether it makes no more calls for what it was given."""


class PeerCloudProcess:
    def __init__(self, program: Program) -> None:
        self._program = program

    def check(self) -> None:
        if not self._program.done:
            self._program.check()

    def over(self) -> bool:
        return self._program.done

    def wait(self, within: float) -> None:
        self._program.wait(within)


def until(holds: Callable[[], bool], within: float, at_work: CloudProcess, look: float = _LOOK) -> bool:
    deadline = time.monotonic() + within
    while not holds():
        at_work.check()
        if time.monotonic() > deadline:
            return False
        time.sleep(look)
    return True
