"""Journal of every request to the AWS stand-in and its outcome, in order.
Tests and benchmarks count by it: refused and broken requests are recorded, too."""

from typing import Literal

import msgspec

from standins.aws.calls import AwsCall


class AwsJournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`at` is a time of the stand-in's clock, `real` of the wall clock. A request has an action, a status (0: no
    response was sent) and an error code; `delayed` is how long, in real seconds, a fault delayed it. `drained` is a
    network interface, with its groups, that was removed after its load balancer. `ended` is a request of Cloud Control
    that has ended, with the type and identifier of its resource: without a code, the resource is gone."""

    number: int
    at: float
    real: float
    what: Literal["request", "drained", "ended"] = "request"
    action: str = ""
    account: str = ""
    region: str = ""
    key: str = ""
    status: int = 0
    code: str = ""
    ids: tuple[str, ...] = ()
    delayed: float = 0.0
    setup: bool = False


class AwsJournal:
    def __init__(self) -> None:
        self._entries: list[AwsJournalEntry] = []

    def request(self, call: AwsCall, at: float, real: float, status: int, code: str, delayed: float = 0.0) -> None:
        self._entries.append(
            AwsJournalEntry(
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
        self._entries.append(AwsJournalEntry(number=number, at=at, real=real, what="drained", ids=(interface, *groups)))

    def ended(self, ids: tuple[str, str], code: str, at: float, real: float) -> None:
        number = len(self._entries)
        self._entries.append(AwsJournalEntry(number=number, at=at, real=real, what="ended", code=code, ids=ids))

    def since(self, number: int) -> list[AwsJournalEntry]:
        return self._entries[number:]


def _ids(call: AwsCall) -> tuple[str, ...]:
    """Ids, ARNs and names in a request."""
    if call.service == "eks":
        return (call.path.strip("/").rpartition("/")[2],)
    return tuple(
        str(value)
        for key, value in call.params.items()
        if isinstance(value, str)
        and ("Id" in key or "Arn" in key or "Name" in key or ".Value" in key or key in ("Bucket", "Key"))
        if key not in ("Action", "Version") and not key.endswith(".Name")
    )
