"""What goes wrong with a request: denials, broken answers, closed connections, waits."""

from fnmatch import fnmatchcase
from typing import Final

from standins.azure.behaviour import Fault
from standins.azure.calls import Call
from standins.faulting import Faulting

WAITS: Final = ("slow", "gate")


class Faults(Faulting[Fault, Call]):
    def __init__(self) -> None:
        super().__init__(_meets, WAITS)


def _meets(fault: Fault, call: Call) -> bool:
    return (
        fnmatchcase(call.operation, fault.operation)
        and fault.subscription.lower() in ("", call.subscription.lower())
        and (not fault.about or call.says(fault.about))
    )
