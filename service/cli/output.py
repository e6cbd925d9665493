"""How a picture is shown: as tables for a person, or as JSON for a program.
Nothing leaves here with a credential in it, or with a control character that could play with a terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from service.cli.cleaning import clean as clean
from service.masking import MASK, mask_text, names_secret

# In a pipe nothing is folded: whoever greps wants a row on a line.
_PIPE_WIDTH: Final = 5000
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def console() -> Console:
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def status_line() -> Console:
    """Where progress is shown; standard output belongs to the picture."""
    return Console(file=sys.stderr, markup=False, highlight=False, emoji=False)


def show(parts: Iterable[RenderableType]) -> None:
    screen = console()
    for part in parts:
        screen.print(part)


def show_json(picture: object, *, on_one_line: bool = False) -> None:
    """Times are RFC 3339, durations are seconds."""
    encoded = msgspec.json.encode(plain(picture))
    click.echo(encoded if on_one_line else msgspec.json.format(encoded, indent=2))


def plain(value: object) -> Any:
    """A picture as numbers, masked texts, lists and mappings."""
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


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[str] = ()
) -> RenderableType:
    """`numbers` are the columns that stand to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(Text(column), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return Group(note(title, "bold"), made, Text())


def facts(title: str, rows: Iterable[tuple[str, object]]) -> RenderableType:
    """Names and values, those without a value left out."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            made.add_row(Text(name), value if isinstance(value, Text) else Text(clean(value)))
    return Group(note(title, "bold"), made, Text())


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


def relative(at: datetime | None, now: datetime | None) -> str:
    if at is None or now is None:
        return ""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"
