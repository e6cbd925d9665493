"""Stand-in of a cloud for one turn, in a process of its own, whose time may run faster than real time.

The result of every call is read from its journal, so that all contenders are counted alike."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from standins.stand_in_process import StandInProcess


class CloudStandin:
    """Its methods block. What the harness makes there draws on no bucket and is not counted."""

    def __init__(self, stand_in: StandInProcess, scale: float) -> None:
        self._stand_in = stand_in
        self.scale = scale
        """How many of its seconds pass in one of ours."""
        self.calls = 0
        self.refused = 0
        """For want of quota."""
        self._read = 0

    def __enter__(self) -> Self:
        self._stand_in.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stand_in.stop()

    @property
    def address(self) -> str:
        return self._stand_in.address

    def now(self) -> float:
        """Its own time, in seconds."""
        return asyncio.run(self._stand_in.now())

    def behave(self, **changes: Any) -> None:
        """Changes fields of the stand-in's behaviour."""
        asyncio.run(self._stand_in.behave(**changes))
