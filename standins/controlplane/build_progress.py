"""Progress display of a build: bars on a terminal, otherwise a line now and then.
Each step counts actual work, so that a step that hangs can be recognised."""

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_LINE_EVERY: Final = 15.0


class BuildProgress:
    """One step at a time; `begin` ends the previous one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[amount]:>12}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._name, self._done, self._total = "", 0, 0
        self._began = self._spoke = 0.0

    def begin(self, name: str, total: int = 0) -> None:
        """A total of 0 means unknown; the bar then only shows activity."""
        self.finish()
        self._name, self._done, self._total = name, 0, total
        self._began = self._spoke = time.monotonic()
        self._task = self._bars.add_task(name, total=total or None, amount="")
        self._line()

    def advance(self) -> None:
        self._done += 1
        if self._task is not None:
            # The total is an estimate; it must not show more than 100%.
            self._bars.update(self._task, completed=min(self._done, self._total or self._done), amount=self._amount())
        if time.monotonic() - self._spoke >= _LINE_EVERY:
            self._line()

    def finish(self) -> None:
        if self._task is None:
            return
        total = self._total or self._done or 1
        self._bars.update(self._task, total=total, completed=total, amount=str(self._done or ""))
        self._line()
        self._task = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        self._bars.stop()

    def _amount(self) -> str:
        return f"{self._done} of {self._total}" if self._total else str(self._done)

    def _line(self) -> None:
        now = time.monotonic()
        self._spoke = now
        if not self._console.is_terminal:
            amount = f": {self._amount()}" if self._done else ""
            self._console.print(f"  {self._name}{amount} ({now - self._began:.0f} s)", highlight=False)
