"""Terminal output of the demo: a live display on a terminal, plain lines elsewhere.
It only shows what it is given; nothing is read or decided here."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_LINE_EVERY: Final = 2.0
_EVENTS_SHOWN: Final = 7
_BAR_WIDTH: Final = 36


@dataclass(slots=True)
class Display:
    """With `quiet`, standard output is left to the program that reads it, and lines go to standard error."""

    quiet: bool
    events: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    bars: Sequence[tuple[str, int, int]] = ()
    """Name, how many are gone, of how many."""
    notes: Sequence[str] = ()
    headline: str = ""
    """The progress in one line, for where there is no live display."""
    console: Console = field(init=False)
    _printed: float = 0.0

    def __post_init__(self) -> None:
        self.console = Console(stderr=self.quiet, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def animated(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def say(self, text: str) -> None:
        """Adds an event to the log of the demo."""
        line = f"{time.monotonic() - self.started:5.1f} s  {text}"
        self.events.append(line)
        if not self.animated:
            self.console.print(line)
            sys.stdout.flush()

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Names what is being waited for."""
        if self.animated:
            with self.console.status(text):
                yield
        else:
            self.say(text)
            yield

    @contextmanager
    def live(self) -> Iterator[None]:
        if not self.animated:
            yield
            return
        try:
            with Live(get_renderable=self._frame, console=self.console, refresh_per_second=4, transient=True):
                yield
        finally:
            # The live display is erased; the log of events stays.
            self.console.print("\n".join(self.events), style="dim")

    def progress(self) -> None:
        """Without a live display, prints a line every few seconds."""
        if not self.animated and time.monotonic() - self._printed > _LINE_EVERY:
            self._printed = time.monotonic()
            self.say(self.headline)

    def _frame(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for name, gone, of in self.bars:
            bar = ProgressBar(of, gone, _BAR_WIDTH, complete_style="green", finished_style="green")
            grid.add_row(name, bar, f"{gone} of {of} gone")
        notes = [Text(note, overflow="ellipsis", no_wrap=True) for note in self.notes]
        # The newest events; a terminal of 24 lines shows all of it.
        events = [Text(one, style="dim", overflow="ellipsis", no_wrap=True) for one in self.events[-_EVENTS_SHOWN:]]
        return Group(*events, *([grid] if self.bars else []), *notes)
