"""Append-only log of the simulated provider's requests and removals, one JSON object per line.
Tests judge by it, because no part of Knell writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec


class JournalLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are seconds of the wall clock, except `monotonic`."""

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
    """Each line is handed to the kernel before the response is sent."""

    def __init__(self, path: Path | None) -> None:
        self._file: TextIO | None = path.open("a", buffering=1, encoding="utf-8") if path is not None else None
        self._encoder = msgspec.json.Encoder()

    def write(self, line: JournalLine) -> None:
        if self._file is not None:
            self._file.write(self._encoder.encode(line).decode() + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_log(path: Path) -> Iterator[JournalLine]:
    """All complete lines of a log that may still be written."""
    decoder = msgspec.json.Decoder(JournalLine)
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decoder.decode(line)
