"""Layout of tables: column widths, folding and truncation of text.
Text is folded between words; only a word longer than its column is folded inside, after a separator."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

# Identifiers are folded between their parts, and inside a part only if it does not fit.
_PART: Final = re.compile(r"[^/#:,;=@&?]*[/#:,;=@&?]*")
_PIECE: Final = re.compile(r"[^.-]*[.-]*")
_CUT: Final = (20, 12)
_UNFOLDED: Final = 16
_LEAST: Final = 6


def widths(rows: Sequence[Sequence[str]], room: int, gap: int, cut: int | None) -> list[int]:
    """Width of each column, so that the table fits into `room`. First the column `cut` shrinks, then the widest of
    those that can be folded."""
    columns = list(zip(*rows, strict=True))
    found = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    room -= gap * (len(columns) - 1)
    parts, pieces = _folding(columns, found, _PART), _folding(columns, found, _PIECE)
    stages = [
        (list(found), _CUT[0]),
        (parts, _CUT[0]),
        (parts, _CUT[1]),
        (pieces, _CUT[1]),
        ([_LEAST] * len(found), _LEAST),
    ]
    for least, cut_least in stages:
        _shrink(found, [cut_least if place == cut else one for place, one in enumerate(least)], room)
    return found


def _folding(columns: Sequence[Sequence[str]], found: Sequence[int], pattern: re.Pattern[str]) -> list[int]:
    """Minimum width of each column with this folding; narrow columns are not folded."""
    longest = [
        max((len(part) for cell in column for word in cell.split() for part in pattern.findall(word)), default=0)
        for column in columns
    ]
    return [max(one, min(width, _UNFOLDED)) for one, width in zip(longest, found, strict=True)]


def _shrink(found: list[int], least: Sequence[int], room: int) -> None:
    while sum(found) > room:
        places = [place for place, width in enumerate(found) if width > least[place]]
        if not places:
            return
        found[max(places, key=lambda place: found[place])] -= 1


def folded(text: str, width: int) -> list[str]:
    """Lines of the text, none longer than the width."""
    return [line for paragraph in text.split("\n") for line in _lines(paragraph, width)]


def _lines(paragraph: str, width: int) -> Iterator[str]:
    if len(paragraph) <= width:
        yield paragraph
        return
    line = ""
    for word in paragraph.split():
        space = " " if line else ""
        for part in [word] if len(word) <= width else _PART.findall(word):
            if line and len(line) + len(space) + len(part) > width:
                yield line
                line, space = "", ""
            *full, rest = _pieces(part, width)
            yield from full
            line, space = f"{line}{space}{rest}", ""
    yield line


def _pieces(part: str, width: int) -> list[str]:
    """One line, or several if this part of a word does not fit."""
    lines = [""]
    for piece in [part] if len(part) <= width else _PIECE.findall(part):
        for first in range(0, len(piece), width):
            if len(lines[-1]) + len(piece[first : first + width]) > width:
                lines.append("")
            lines[-1] += piece[first : first + width]
    return lines


def shortened(text: str, width: int) -> str:
    """The text on one line, truncated after a word if it is longer than the width."""
    line = " ".join(text.split())
    if len(line) <= width:
        return line
    whole = line[:width].rpartition(" ")[0].rstrip(" ,;:.(")
    return f"{whole or line[: width - 1]}…"
