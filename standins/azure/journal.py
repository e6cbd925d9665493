"""Journal of everything that the Azure stand-in was asked and what happened there, in order.
Tests and benchmarks count by it: refused and broken requests are recorded, too."""

from typing import Literal

import msgspec

from standins.azure.calls import ArmCall
from standins.azure.stored_resources import StoredResource


class AzureJournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """`at` is a time of the stand-in's clock, `real` of the wall clock. A request has an operation, a status (0: no
    response was sent) and an error code; `delayed` is how long, in real seconds, a fault delayed it. `gone` records a
    resource that was removed, by whatever cause; `made` one that was created."""

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


class AzureJournal:
    def __init__(self) -> None:
        self._entries: list[AzureJournalEntry] = []

    def request(self, call: ArmCall, at: float, real: float, status: int, code: str, delayed: float = 0.0) -> None:
        self._entries.append(
            AzureJournalEntry(
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

    def happened(self, what: Literal["gone", "made"], resource: StoredResource, at: float, real: float) -> None:
        """`operation` of such an entry is the kind of the resource."""
        self._entries.append(
            AzureJournalEntry(
                number=len(self._entries),
                at=at,
                real=real,
                what=what,
                operation=resource.kind,
                subscription=resource.spec.subscription,
                group=resource.spec.group,
                name=resource.spec.name,
                id=resource.id,
            )
        )

    def since(self, number: int) -> list[AzureJournalEntry]:
        return self._entries[number:]
