"""Log of when the handler of each object began; it is printed when the harness closes the standard input.

Only the standard library is used here, because this file is also imported inside the environments of the peers."""

from __future__ import annotations

import sys
import threading
import time

from bench.peers.tally import answer


class Starts:
    """Told of each object as its handler begins; the first time counts."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        # A thread that sleeps in a read costs nothing, and works in every kind of event loop.
        threading.Thread(target=self._tell, name="starts", daemon=True).start()

    def began(self, name: str) -> None:
        self._at.setdefault(name, time.time())

    def _tell(self) -> None:
        sys.stdin.read()
        answer(starts=dict(self._at))
