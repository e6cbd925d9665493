"""What the stand-in was asked and what became of it, in the order in which it happened.
It counts for tests and figures: every request is here, also the refused and the broken ones."""

from typing import Literal

import msgspec

from standins.aws.calls import Call


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`at` is of the stand-in's clock, `real` of the wall clock. A request has an action and a status (0: no answer was
    given), and an error's code; `delayed` are the real seconds for which a fault had it waiting before it was looked
    at. `drained` is an interface that went, long after its balancer, with its groups."""

    number: int
    at: float
    real: float
    what: Literal["request", "drained"] = "request"
    action: str = ""
    account: str = ""
    region: str = ""
    key: str = ""
    status: int = 0
    code: str = ""
    ids: tuple[str, ...] = ()
    delayed: float = 0.0
    setup: bool = False


class Journal:
    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def request(self, call: Call, at: float, real: float, status: int, code: str, delayed: float = 0.0) -> None:
        self._entries.append(
            Entry(
                number=len(self._entries),
                at=at,
                real=real,
                action=call.name,
                account=call.account,
                region=call.region,
                key=call.key,
                status=status,
                code=code,
                ids=_ids(call),
                delayed=delayed,
                setup=call.setup,
            )
        )

    def drained(self, interface: str, groups: list[str], at: float, real: float) -> None:
        number = len(self._entries)
        self._entries.append(Entry(number=number, at=at, real=real, what="drained", ids=(interface, *groups)))

    def since(self, number: int) -> list[Entry]:
        return self._entries[number:]


def _ids(call: Call) -> tuple[str, ...]:
    """What a request names: ids, ARNs and names."""
    if call.service == "eks":
        return (call.path.strip("/").rpartition("/")[2],)
    return tuple(
        str(value)
        for key, value in call.params.items()
        if isinstance(value, str) and ("Id" in key or "Arn" in key or "Name" in key or ".Value" in key)
        if key not in ("Action", "Version") and not key.endswith(".Name")
    )
