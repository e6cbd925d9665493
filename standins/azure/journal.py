"""What the stand-in was asked and what became of it, in the order in which it happened.
It counts for tests and figures: every request is here, also the refused and the broken ones."""

from typing import Literal

import msgspec

from standins.azure.calls import Call
from standins.azure.thing import Thing


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`at` is of the stand-in's clock, `real` of the wall clock. A request has an operation and a status (0: no answer
    was given), and an error's code; `delayed` are the real seconds for which a fault had it waiting before it was
    looked at. `gone` is a resource that went, whoever had it go; `made` one that came."""

    number: int
    at: float
    real: float
    what: Literal["request", "gone", "made"] = "request"
    operation: str = ""
    subscription: str = ""
    group: str = ""
    name: str = ""
    status: int = 0
    code: str = ""
    principal: str = ""
    delayed: float = 0.0
    setup: bool = False
    id: str = ""


class Journal:
    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def request(self, call: Call, at: float, real: float, status: int, code: str, delayed: float = 0.0) -> None:
        self._entries.append(
            Entry(
                number=len(self._entries),
                at=at,
                real=real,
                operation=call.operation,
                subscription=call.subscription,
                group=call.group,
                name=call.name,
                status=status,
                code=code,
                principal=call.principal,
                delayed=delayed,
                setup=call.setup,
                id=call.id,
            )
        )

    def happened(self, what: Literal["gone", "made"], thing: Thing, at: float, real: float) -> None:
        """`operation` of such an entry is the resource's kind."""
        self._entries.append(
            Entry(
                number=len(self._entries),
                at=at,
                real=real,
                what=what,
                operation=thing.kind,
                subscription=thing.made.subscription,
                group=thing.made.group,
                name=thing.made.name,
                id=thing.id,
            )
        )

    def since(self, number: int) -> list[Entry]:
        return self._entries[number:]
