"""The provider's own log: what it was asked and what it did, a JSON object on each line, never rewritten.
Tests and the demo judge by it, because nothing of Knell writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. Times are seconds of the wall clock, except `monotonic`."""

    what: str
    at: float
    account: str = ""
    id: str = ""
    arrived: float = 0.0
    monotonic: float = 0.0
    method: str = ""
    status: int = 0
    caller: str = ""
    owner: str = ""
    remaining: float | None = None
    blocker: str = ""
    retry_until: float | None = None
    reserved_until: float | None = None


class Journal:
    """Writes lines; each is with the kernel before the answer leaves."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", buffering=1, encoding="utf-8") if path is not None else None
        self._encoder = msgspec.json.Encoder()

    def write(self, line: Line) -> None:
        if self._file is not None:
            self._file.write(self._encoder.encode(line).decode() + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_log(path: Path) -> Iterator[Line]:
    """All whole lines of a log, also of one that is still being written."""
    decoder = msgspec.json.Decoder(Line)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
