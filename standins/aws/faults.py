"""What goes wrong with a request: denials, broken answers, closed connections, slowness."""

from fnmatch import fnmatchcase

from standins.aws.behaviour import Fault
from standins.aws.calls import Call
from standins.faulting import Faulting


class Faults(Faulting[Fault, Call]):
    def __init__(self) -> None:
        super().__init__(_meets, ("slow",))


def _meets(fault: Fault, call: Call) -> bool:
    return (
        fnmatchcase(call.name, fault.action)
        and fault.account in ("", call.account)
        and fault.region in ("", call.region)
        and (not fault.about or any(fault.about in value for value in call.values()))
    )
