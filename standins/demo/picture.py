"""What is to be seen of the demo while it runs: a moving picture on a terminal, plain lines elsewhere.
It only shows what it is given; nothing is read or decided here."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from service.kubernetes import Seen
from service.web.numbers import ShardNumbers
from standins.demo.capi import CALLED
from standins.demo.invention import NAMESPACES, Invented
from standins.demo.karpenter import CALLED as CLAIM
from standins.demo.karpenter import INTERFACE
from standins.demo.ledger import Ledger
from standins.demo.reservation import Reservation

_LINE_EVERY: Final = 2.0
_SHOWN: Final = 8


@dataclass(slots=True)
class Picture:
    """With `quiet`, standard output is left to the program that reads it, and lines go to standard error."""

    invented: Invented
    quiet: bool
    said: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    released: int = 0
    there: Mapping[str, Seen] = field(default_factory=dict)
    numbers: list[ShardNumbers] = field(default_factory=list)
    ledger: Ledger | None = None
    aws: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How many of each kind are left of the cluster on AWS, and of how many; nothing when the cluster is gone."""
    azure: Reservation | None = None
    """Of the interface of a NodeClaim that was deleted; None before that, and when the interface is gone."""
    console: Console = field(init=False)
    _spoken: float = 0.0

    def __post_init__(self) -> None:
        self.console = Console(stderr=self.quiet, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def moving(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def stamp(self, at: float) -> str:
        """When that is by the times of these lines, from the wall clock."""
        return f"{time.monotonic() - self.started + at - time.time():.1f} s"

    def say(self, words: str) -> None:
        """Something happened that the picture does not show by itself."""
        stamped = f"{time.monotonic() - self.started:5.1f} s  {words}"
        self.said.append(stamped)
        if not self.moving:
            self.console.print(stamped)
            sys.stdout.flush()

    @contextmanager
    def waiting(self, words: str) -> Iterator[None]:
        """What takes a moment is named while it lasts."""
        if self.moving:
            with self.console.status(words):
                yield
        else:
            self.say(words)
            yield

    @contextmanager
    def live(self) -> Iterator[None]:
        if self.moving:
            try:
                with Live(get_renderable=self._picture, console=self.console, refresh_per_second=4, transient=True):
                    yield
            finally:
                # The picture goes, what happened stays to be read.
                self.console.print("\n".join(self.said), style="dim")
        else:
            yield

    def progress(self) -> None:
        """Where nothing moves, a line now and then."""
        book = self.ledger
        if self.moving or book is None or time.monotonic() - self._spoken < _LINE_EVERY:
            return
        self._spoken = time.monotonic()
        self.say(
            f"gone {book.removed}/{len(self.invented.ours)}, released {self.released}/{self.invented.to_release}, "
            f"calls {book.calls}, blocked {book.statuses[409]}, reserved {book.reservations}, "
            f"throttled {book.statuses[429]}"
        )
        if self.aws:
            left = ", ".join(f"{kind} {left}/{of}" for kind, (left, of) in self.aws.items())
            self.say(f"left of {CALLED}: {left}")
        if self.azure is not None:
            self.say(self._interface(self.azure))

    def _picture(self) -> RenderableType:
        parts: list[RenderableType] = [Text("\n".join(self.said[-_SHOWN:]), style="dim")]
        if self.ledger is not None and self.there:
            # Beside each other, so that all of it fits on a small terminal.
            both = Table.grid(padding=(0, 3))
            both.add_row(self._objects(), self._amazon())
            parts += [self._bars(self.ledger), both]
            if self.azure is not None:
                parts.append(Text(self._interface(self.azure)))
            parts.append(self._lanes())
        return Group(*parts)

    def _bars(self, book: Ledger) -> Group:
        grid = Table.grid(padding=(0, 2))
        for what, done, of in (
            ("objects released", self.released, self.invented.to_release),
            ("resources gone", book.removed, len(self.invented.ours)),
        ):
            bar = ProgressBar(of, done, 40, complete_style="green", finished_style="green")
            grid.add_row(what, bar, f"{done}/{of}")
        counts = (
            f"provider's answers: {book.calls} calls   {book.statuses[409]} blocked   "
            f"{book.reservations} reserved   {book.statuses[429]} throttled   {book.statuses[500]} failed"
        )
        return Group(grid, Text(counts))

    def _objects(self) -> Table:
        """As the API server has them."""
        living, going = Counter[str](), Counter[str]()
        for seen in self.there.values():
            (going if seen.going else living)[seen.namespace] += 1
        table = _columns("namespace", "live", "going", "gone")
        for name in NAMESPACES:
            made = sum(thing.namespace == name for thing in self.invented.things)
            gone = made - living[name] - going[name]
            table.add_row(name, *(str(number) for number in (living[name], going[name], gone)))
        return table

    def _amazon(self) -> Table:
        """As the stand-in has it; nothing where there is no cluster."""
        table = _columns(CALLED, "left", "gone") if self.aws else Table.grid()
        for kind, (left, of) in self.aws.items():
            table.add_row(kind, str(left), str(of - left))
        return table

    def _interface(self, told: Reservation) -> str:
        """As the stand-in's journal has it."""
        front = f"left of {CLAIM}: interface {INTERFACE}"
        if told.until is None:
            return front
        if told.called is not None:
            return f"{front}, being deleted"
        rest = told.until - time.time()
        return f"{front}, reserved, goes in {rest:.0f} s" if rest > 0 else f"{front}, may go now"

    def _lanes(self) -> Table:
        """Those in which something is: the cluster on AWS alone has one for each kind of call."""
        table = _columns("lane", "queued", "due", "in hand")
        lanes: dict[str, dict[str, float]] = {}
        for shard in self.numbers:
            for lane, found in shard.lanes.items():
                sums = lanes.setdefault(lane, {})
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + value
        for lane, found in sorted(lanes.items()):
            numbers = [found.get(name, 0.0) for name in ("queued", "due", "leased")]
            if any(numbers):
                table.add_row(lane, *(f"{number:.0f}" for number in numbers))
        return table


def _columns(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column(first, min_width=12)
    for name in numbers:
        table.add_column(name, justify="right")
    return table
