"""Selection of the faults that apply to a request: in their order, each as often as it says."""

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar


class _FaultLike(Protocol):
    @property
    def what(self) -> str: ...

    @property
    def times(self) -> int | None: ...


C = TypeVar("C")
F = TypeVar("F", bound=_FaultLike)


class FaultInjector(Generic[F, C]):
    """`matches` says whether a fault applies to a call; `delays` are the kinds that only delay it."""

    def __init__(self, matches: Callable[[F, C], bool], delays: Collection[str]) -> None:
        self._matches, self._delays = matches, delays
        self._used: dict[F, int] = {}

    def of(self, call: C, faults: tuple[F, ...]) -> list[F]:
        """The faults of a call: all delays, and the first of the others."""
        found: list[F] = []
        for fault in faults:
            delays = fault.what in self._delays
            if not self._matches(fault, call) or (not delays and any(one.what not in self._delays for one in found)):
                continue
            used = self._used.get(fault, 0)
            if fault.times is not None and used >= fault.times:
                continue
            self._used[fault] = used + 1
            found.append(fault)
        return found

    def forget(self) -> None:
        """Resets the counts."""
        self._used.clear()
