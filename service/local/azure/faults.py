"""Chooses what goes wrong with a request: denials, broken answers, closed connections, waits.
Faults are tried in their order, each as often as it says."""

from fnmatch import fnmatchcase
from typing import Final

from service.local.azure.behaviour import Fault
from service.local.azure.calls import Call

WAITS: Final = ("slow", "gate")


class Faults:
    def __init__(self) -> None:
        self._used: dict[Fault, int] = {}

    def of(self, call: Call, faults: tuple[Fault, ...]) -> list[Fault]:
        """All that befall the call: any wait, and the first of the others."""
        found: list[Fault] = []
        for fault in faults:
            if not _meets(fault, call) or (fault.what not in WAITS and any(one.what not in WAITS for one in found)):
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


def _meets(fault: Fault, call: Call) -> bool:
    return (
        fnmatchcase(call.operation, fault.operation)
        and fault.subscription.lower() in ("", call.subscription.lower())
        and (not fault.about or call.says(fault.about))
    )
