"""Stock of CustomResourceDefinitions created before a test needs them.
The real API server delays the first object of a new kind by two seconds; an older kind causes no wait."""

from collections import deque
from typing import Final
from uuid import uuid4

from tests.kube import Crd, Kube

# At least two seconds' worth of the shortest tests.
_AHEAD: Final = 16


class CrdStock:
    """Of one server, for one test process. What is never taken goes with the server."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._waiting: deque[Crd] = deque()

    def take(self) -> Crd:
        """One that nobody else gets, and that is served."""
        while len(self._waiting) <= _AHEAD:
            self._waiting.append(self._made())
        crd = self._waiting.popleft()
        self._kube.wait_until_served(crd)
        return crd

    def _made(self) -> Crd:
        crd = Crd(group="knell.test", plural=f"widgets{uuid4().hex[:8]}")
        self._kube.define(crd)
        return crd
