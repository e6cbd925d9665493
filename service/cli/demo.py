"""`knell demo`: the main job on an embedded server, against a provider that throttles, blocks and reserves.
A worker is killed in the middle; the exit code is 0 only if the provider's own log shows that all is well."""

import asyncio
import statistics
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from service import logs
from service.cli import output
from service.cli.session import Trouble, output_option
from service.local.demo import Invented, Ledger, Summary, Troupe, invent
from service.local.demo.invention import ACCOUNTS, RESERVED
from service.local.demo.ledger import seconds as as_seconds
from service.local.provider.process import ProviderFailed
from service.local.servers import NoServerError
from service.settings import LogSettings
from service.stream.installation import Installation
from service.surface.numbers import ShardNumbers, read_numbers

_FRAME: Final = 0.25
_LINE_EVERY: Final = 2.0
_KILL_AT: Final = 0.5
"""The part of all resources that is gone when a worker is killed."""


@click.command()
@click.option("--objects", type=click.IntRange(4, 500), default=60, show_default=True, help="Objects that are going.")
@click.option(
    "--seconds",
    type=click.IntRange(10, 600),
    default=30,
    show_default=True,
    help="About how long it shall take; the provider's quota is chosen for it.",
)
@output_option
def demo(objects: int, seconds: int, form: str) -> None:
    """Show it at work on an embedded server.

    Starts Valkey, a simulated provider and two workers, lets many objects go at once, kills a worker in the
    middle, and judges the end by the provider's own log.
    """
    logs.configure(LogSettings(level="error"))
    show = _Show(invent(objects, timedelta(seconds=seconds)), as_json=form == "json")
    try:
        problems = asyncio.run(_play(show, timedelta(seconds=seconds)))
    except (NoServerError, ProviderFailed) as error:
        raise Trouble(str(error)) from None
    except KeyboardInterrupt:
        raise Trouble("interrupted; everything that was started has been stopped") from None
    if problems:
        raise Trouble("; ".join(problems))


@dataclass(slots=True)
class _Show:
    """What is to be seen: a moving picture on a terminal, plain lines elsewhere, JSON at the end if asked."""

    invented: Invented
    as_json: bool
    said: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    released: int = 0
    numbers: list[ShardNumbers] = field(default_factory=list)
    ledger: Ledger | None = None
    # With --output json, standard output is for the program that reads it.
    console: Console = field(init=False)

    def __post_init__(self) -> None:
        self.console = Console(stderr=self.as_json, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def moving(self) -> bool:
        return self.console.is_terminal and not self.as_json

    def say(self, words: str) -> None:
        """Something happened that the picture does not show by itself."""
        stamped = f"{time.monotonic() - self.started:5.1f} s  {words}"
        self.said = [*self.said, stamped][-8:]
        if not self.moving:
            self.console.print(stamped)
            sys.stdout.flush()

    def line(self) -> str:
        book = self.ledger
        if book is None:
            return ""
        return (
            f"gone {book.removed}/{len(self.invented.ours)}, "
            f"released {self.released}/{len(self.invented.events)}, calls {book.calls}, "
            f"blocked {book.statuses[409]}, reserved {book.reservations}, throttled {book.statuses[429]}"
        )

    def picture(self) -> RenderableType:
        parts: list[RenderableType] = [Text("\n".join(self.said), style="dim")]
        book = self.ledger
        if book is not None:
            parts += [self._bars(book), self._lanes()]
        return Group(*parts)

    def _bars(self, book: Ledger) -> Group:
        grid = Table.grid(padding=(0, 2))
        for what, done, of in (
            ("resources gone", book.removed, len(self.invented.ours)),
            ("objects released", self.released, len(self.invented.events)),
        ):
            grid.add_row(
                what,
                ProgressBar(of, done, 40, complete_style="green", finished_style="green"),
                f"{done}/{of}",
            )
        counts = (
            f"provider's answers: {book.calls} calls   {book.statuses[409]} blocked   "
            f"{book.reservations} reserved   {book.statuses[429]} throttled   {book.statuses[500]} failed"
        )
        return Group(grid, Text(counts))

    def _lanes(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
        for name in ("lane", "queued", "due", "in hand"):
            table.add_column(name, justify="left" if name == "lane" else "right")
        lanes: dict[str, dict[str, float]] = {}
        for shard in self.numbers:
            for lane, found in shard.lanes.items():
                sums = lanes.setdefault(lane, {})
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + value
        for lane, found in sorted(lanes.items()):
            table.add_row(lane, *(f"{found.get(name, 0):.0f}" for name in ("queued", "due", "leased")))
        return table


async def _play(show: _Show, length: timedelta) -> list[str]:
    """Everything between the first line and the last; answers what went wrong."""
    invented = show.invented
    scale = invented.behaviour.scale
    show.console.print(
        f"{len(invented.events)} objects are going; they own {len(invented.ours)} resources in "
        f"{len(ACCOUNTS)} accounts.\n"
        f"A reservation of {RESERVED.total_seconds():.0f} s is shown as "
        f"{RESERVED.total_seconds() / scale:.1f} s, and the provider's other times are shortened alike.",
    )
    show.say("starting an embedded Valkey and a simulated provider")
    troupe = Troupe(invented)
    try:
        troupe.start()
        show.ledger = Ledger(troupe.provider.log, invented.ours)
        installation = Installation(troupe.settings(), name="knell-demo")
        try:
            with (
                Live(
                    get_renderable=show.picture,
                    console=show.console,
                    refresh_per_second=4,
                    transient=True,
                )
                if show.moving
                else nullcontext()
            ):
                done = await _perform(show, troupe, installation, length)
            numbers = await read_numbers(installation.connections.client, installation.keys)
        finally:
            await installation.aclose()
        await troupe.settle()
        show.ledger.catch_up()
        summary = _sum_up(show, show.ledger, numbers)
        problems = _judge(summary, done, troupe)
    finally:
        troupe.stop()
    if show.as_json:
        output.show_json({"summary": summary, "problems": problems})
    else:
        _show_summary(show.console, summary)
    return problems


async def _perform(show: _Show, troupe: Troupe, installation: Installation, length: timedelta) -> bool:
    """Until all is done, or far too much time has passed."""
    deadline = time.monotonic() + 3 * length.total_seconds() + 30
    first, second = troupe.add_worker(), troupe.add_worker()
    await installation.publish(show.invented.events)
    show.say(f"{len(show.invented.events)} events published, {first} and {second} started")
    rival = asyncio.create_task(troupe.compete("compute"))
    killed, spoken = False, 0.0
    try:
        while time.monotonic() < deadline:
            await asyncio.sleep(_FRAME)
            await _look(show, installation)
            if not show.moving and time.monotonic() - spoken > _LINE_EVERY:
                spoken = time.monotonic()
                show.say(show.line())
            book = show.ledger
            if not killed and book is not None and book.removed >= _KILL_AT * len(show.invented.ours):
                killed = True
                show.say(f"kill -9 of {troupe.kill_worker()}; its jobs will be given back when their leases end")
                show.say(f"{troupe.add_worker()} started in its place")
            if show.released >= len(show.invented.events):
                return True
            if troupe.fallen():
                return False
    finally:
        rival.cancel()
        with suppress(asyncio.CancelledError):
            await rival
    return False


async def _look(show: _Show, installation: Installation) -> None:
    show.numbers = await read_numbers(installation.connections.client, installation.keys)
    show.released = int(sum(shard.counters["done"] for shard in show.numbers))
    if show.ledger is not None:
        show.ledger.catch_up()


def _sum_up(show: _Show, book: Ledger, numbers: list[ShardNumbers]) -> Summary:
    waits = book.waits()
    return Summary(
        deletions=len(show.invented.events),
        released=show.released,
        resources=len(show.invented.ours),
        removed=book.removed,
        calls=book.calls,
        throttled=book.statuses[429],
        repeated=book.repeated,
        blocked=book.statuses[409],
        failed=book.statuses[500],
        reservations=book.reservations,
        early=book.early,
        late_median=as_seconds(statistics.median(book.late) if book.late else None),
        late_most=as_seconds(max(book.late, default=None)),
        longest_wait=as_seconds(max(waits, default=None)),
        refused_foreign=int(sum(shard.counters["refused"] for shard in numbers)),
        foreign_touched=sorted(book.strangers),
        left=book.left(),
        given_back=int(sum(shard.counters["reclaimed"] for shard in numbers)),
        took=timedelta(seconds=round(time.monotonic() - show.started, 1)),
    )


def _judge(summary: Summary, done: bool, troupe: Troupe) -> list[str]:
    problems = [f"{name} ended by itself: {troupe.last_words(name)}" for name in troupe.fallen()]
    if summary.left:
        shown = ", ".join(summary.left[:5])
        problems.append(f"{len(summary.left)} resources are not gone by the provider's log ({shown}...)")
    if summary.foreign_touched:
        problems.append(f"what is not ours was touched: {', '.join(summary.foreign_touched)}")
    if summary.early:
        problems.append(f"{summary.early} calls came before a reservation was over")
    if not done and not problems:
        missing = summary.deletions - summary.released
        problems.append(f"{missing} objects were not released in time")
    return problems


def _show_summary(console: Console, summary: Summary) -> None:
    late = ""
    if summary.late_median is not None and summary.late_most is not None:
        late = (
            f"; called again {summary.late_median.total_seconds():.2f} s (median) after the named time, "
            f"{summary.late_most.total_seconds():.2f} s at most"
        )
    rows = [
        ("deletions", f"{summary.deletions}, objects released: {summary.released}"),
        ("resources removed", f"{summary.removed} of {summary.resources}"),
        (
            "delete calls",
            f"{summary.calls}; for what was accepted already: {summary.repeated}",
        ),
        ("throttled calls", str(summary.throttled)),
        ("blocked by another resource", str(summary.blocked)),
        ("reservations kept", f"{summary.reservations - summary.early} of {summary.reservations}{late}"),
        ("failed calls, tried again", str(summary.failed)),
        ("jobs given back after the kill", str(summary.given_back)),
        (
            "tagged as somebody else's",
            f"refused {summary.refused_foreign}, touched {len(summary.foreign_touched)}",
        ),
        ("longest wait for a resource", output.span(summary.longest_wait)),
        ("time", output.span(summary.took)),
    ]
    table = Table(title="What the provider's own log shows", title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
