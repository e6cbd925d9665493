"""Output of commands: tables and notes for operators, JSON and names for programs.
Credentials are masked, and control characters that could affect a terminal are escaped."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from service.cli.main import FORM
from service.cli.printable import clean as clean
from service.cli.table_layout import folded, shortened, widths
from service.masking import MASK, mask_text, names_secret

# In a pipe, sentences and rows of wide tables stay on one line.
_PIPE_WIDTH: Final = 5000
_TABLE_WIDTH: Final = 80
_GAP: Final = "  "
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def console() -> Console:
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def status_line() -> Console:
    """Standard error, for progress; standard output is for the result."""
    return Console(file=sys.stderr, markup=False, highlight=False, emoji=False)


def show(parts: Iterable[RenderableType]) -> None:
    screen = console()
    for part in parts:
        screen.print(part)


def show_json(document: object, *, on_one_line: bool = False) -> None:
    """Times are RFC 3339, durations are seconds."""
    encoded = msgspec.json.encode(plain(document))
    click.echo(encoded if on_one_line else msgspec.json.format(encoded, indent=2))


def show_names(names: Iterable[str]) -> None:
    """One per line, as input of other commands."""
    for name in names:
        click.echo(clean(name))


def plain(value: object) -> Any:
    """The value as JSON types, with credentials masked."""
    return _plain(msgspec.to_builtins(value, builtin_types=(datetime, timedelta)))


def _plain(value: object) -> object:
    match value:
        case timedelta():
            return round(value.total_seconds(), 3)
        case str():
            return mask_text(value)
        case Mapping():
            return {str(key): MASK if names_secret(str(key)) else _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def is_wide() -> bool:
    """Whether the running command has `--output wide`."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(FORM) == "wide"


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
    wide: Sequence[str] = (),
    cut: str = "",
) -> RenderableType:
    """`numbers` are right-aligned columns, `wide` those that only `--output wide` shows, `cut` is the column that is
    truncated if the table is too wide; other columns are folded."""
    return _Table(title, columns, [[_cell(cell) for cell in row] for row in rows], numbers, wide, cut)


def facts(title: str, rows: Iterable[tuple[str, object]]) -> RenderableType:
    """Names and values; empty values are left out."""
    known = [[Text(name, style="dim"), _cell(value)] for name, value in rows if value not in (None, "")]
    return _Table(title, (), known)


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(clean(value))


class _Table:
    """As wide as the terminal, or 80 characters without one."""

    def __init__(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Text]],
        numbers: Sequence[str] = (),
        wide: Sequence[str] = (),
        cut: str = "",
    ) -> None:
        self._title, self._columns, self._rows = title, columns, rows
        self._numbers, self._wide, self._cut = numbers, wide, cut

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        room = options.max_width if console.file.isatty() else _TABLE_WIDTH
        if is_wide():
            room = _PIPE_WIDTH
        yield from (_line(part, "bold") for part in folded(clean(self._title), room))
        shown = [place for place, name in enumerate(self._columns) if is_wide() or name not in self._wide]
        columns = [self._columns[place] for place in shown]
        head = [[Text(column, style="bold") for column in columns]] if columns else []
        rows = [[row[place] for place in shown] if columns else list(row) for row in self._rows]
        cut = columns.index(self._cut) if self._cut in columns else None
        fitted = widths([[cell.plain for cell in row] for row in [*head, *rows]], room, len(_GAP), cut)
        right = [column in self._numbers for column in columns] or [False] * len(fitted)
        for number, row in enumerate([*head, *rows]):
            yield from _row_lines(row, fitted, right, cut)
            if head and not number:
                yield _line("─" * (sum(fitted) + len(_GAP) * (len(fitted) - 1)))
        yield _line("")


def _row_lines(row: Sequence[Text], fitted: Sequence[int], right: Sequence[bool], cut: int | None) -> Iterator[Text]:
    cells = [
        [shortened(cell.plain, width)] if place == cut else folded(cell.plain, width)
        for place, (cell, width) in enumerate(zip(row, fitted, strict=True))
    ]
    for number in range(max(map(len, cells), default=0)):
        line = _line("")
        for place, (cell, width) in enumerate(zip(row, fitted, strict=True)):
            part = Text(cells[place][number] if number < len(cells[place]) else "", style=cell.style)
            part.align("right" if right[place] else "left", width)
            line.append_text(part).append(_GAP if place < len(fitted) - 1 else "")
        line.rstrip()
        yield line


def _line(words: str, style: str = "") -> Text:
    return Text(words, style=style, no_wrap=True, overflow="ignore")


def note(words: str, style: str = "") -> Text:
    return Text(clean(words), style=style)


def span(length: timedelta | None) -> str:
    """A duration in its two largest units: `3m5s`."""
    if length is None:
        return ""
    seconds = length.total_seconds()
    if abs(seconds) < 10:
        return f"{seconds:.1f}s"
    rest, words = int(abs(seconds)), list[str]()
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or words:
            words.append(f"{count}{unit}" if count else "")
        if len(words) == 2:
            break
    return ("-" if seconds < 0 else "") + "".join(words)


def moment(at: datetime | None) -> str:
    """A time to the millisecond, in UTC."""
    if at is None:
        return ""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def second(at: datetime | None) -> str:
    """A time to the second, in UTC."""
    return f"{moment(at)[:-5]}Z" if at is not None else ""


def age(since: datetime | None, now: datetime | None) -> str:
    return span(max(timedelta(0), now - since)) if since is not None and now is not None else ""


def relative(at: datetime | None, now: datetime | None) -> str:
    if at is None or now is None:
        return ""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"
