"""Progress of the bench: which trial, which round, which contender.

A bar on a terminal; one line per turn where there is none, so that a log shows progress, too."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.rounds import Turn


class TurnProgress:
    def __init__(self, console: Console, turns: int) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("bench", total=turns)
        self._begun = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def turn(self, turn: Turn) -> None:
        text = f"{turn.trial}, round {turn.round} of {turn.rounds}: {turn.contender}"
        self._bar.update(self._task, completed=self._begun, description=f"{text:<48}")
        self._begun += 1
        if not self._console.is_terminal:
            self._console.print(text)
