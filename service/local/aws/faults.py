"""Chooses what goes wrong with a request: denials, broken answers, closed connections, slowness.
Faults are tried in their order, each as often as it says."""

from fnmatch import fnmatchcase

from service.local.aws.behaviour import Fault
from service.local.aws.calls import Call


class Faults:
    def __init__(self) -> None:
        self._used: dict[Fault, int] = {}

    def of(self, call: Call, faults: tuple[Fault, ...]) -> list[Fault]:
        """All that befall the call: any slowness, and the first of the others."""
        found: list[Fault] = []
        for fault in faults:
            if not _meets(fault, call) or (fault.what != "slow" and any(one.what != "slow" for one in found)):
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
        fnmatchcase(call.name, fault.action)
        and fault.account in ("", call.account)
        and fault.region in ("", call.region)
        and (not fault.about or any(fault.about in value for value in call.values()))
    )
