"""Reader of the provider's log while it is written, for the progress of a scenario.

Each call reads only what was added since the last one."""

from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from tests.simulated import JournalLine


class LogTail:
    """`gone` resources so far, calls that were `throttled`, and who was heard."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("rb")
        self._rest = b""
        self._decode = msgspec.json.Decoder(JournalLine).decode
        self.gone = self.throttled = 0
        self.callers: set[str] = set()

    def look(self) -> list[JournalLine]:
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        lines = [self._decode(text) for text in whole]
        for line in lines:
            if line.what == "gone":
                self.gone += 1
            elif line.caller:
                self.callers.add(line.caller)
            self.throttled += line.status == 429
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
