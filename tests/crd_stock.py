"""Kinds of object that are made some tests ahead of the one that takes them.
The real server holds back the first object of a new kind for two seconds; nobody waits for one that is older."""

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
