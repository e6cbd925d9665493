"""Which of its faults befall a request of a stand-in: tried in their order, each as often as it says."""

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar


class _Fault(Protocol):
    @property
    def what(self) -> str: ...

    @property
    def times(self) -> int | None: ...


C = TypeVar("C")
F = TypeVar("F", bound=_Fault)


class Faulting(Generic[F, C]):
    """`meets` says whether a fault is about a call; `waits` are those that only make it late."""

    def __init__(self, meets: Callable[[F, C], bool], waits: Collection[str]) -> None:
        self._meets, self._waits = meets, waits
        self._used: dict[F, int] = {}

    def of(self, call: C, faults: tuple[F, ...]) -> list[F]:
        """All that befall the call: any wait, and the first of the others."""
        found: list[F] = []
        for fault in faults:
            waits = fault.what in self._waits
            if not self._meets(fault, call) or (not waits and any(one.what not in self._waits for one in found)):
                continue
            used = self._used.get(fault, 0)
            if fault.times is not None and used >= fault.times:
                continue
            self._used[fault] = used + 1
            found.append(fault)
        return found

    def forget(self) -> None:
        """Counts begin anew."""
        self._used.clear()
