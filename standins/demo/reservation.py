"""What became of the interface on Azure, by the stand-in's own journal: refused because it is reserved, and then gone.
That a call came early is Azure's own judgement: it refuses it again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from standins.azure import Entry
from standins.demo.clouds import CloudSummary
from standins.demo.karpenter import CALLED, INTERFACE
from standins.demo.subscription import RATE, RESERVED, Subscription

SPAN: Final = timedelta(seconds=RESERVED / RATE)
"""How long the answer says that it is reserved: seconds of who waits."""
_CODE: Final = "NicReservedForAnotherVm"
_LATEST: Final = SPAN
"""More than that after its time is not the first moment, also on a machine that has much else to do."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """`refused` are the deletes that it stopped, `called` is the first that came later, `gone` the interface's end."""

    refused: tuple[Entry, ...] = ()
    called: Entry | None = None
    gone: Entry | None = None

    @property
    def until(self) -> float | None:
        """Its end by the wall clock, as the last refusal named it."""
        return self.refused[-1].real + SPAN.total_seconds() if self.refused else None

    @property
    def early(self) -> int:
        return max(0, len(self.refused) - 1)

    @property
    def late(self) -> timedelta | None:
        """From its end to the next call, by the stand-in's clock: nobody moves that."""
        if not self.refused or self.called is None:
            return None
        return timedelta(seconds=round((self.called.at - self.refused[-1].at - RESERVED) / RATE, 3))

    def outlived(self, moments: Collection[float]) -> bool:
        """Whether one of these was while it was waited for."""
        if not self.refused or self.called is None:
            return False
        return any(self.refused[0].real < one < self.called.real for one in moments)


def read(entries: Sequence[Entry], interface: str) -> Reservation:
    """The interface by its id in small letters."""
    about = [one for one in entries if one.id.lower() == interface]
    deletes = [one for one in about if one.operation == "nic.delete"]
    refused = tuple(one for one in deletes if one.code == _CODE)
    after = refused[-1].number if refused else -1
    # A call that was throttled did not reach the interface.
    called = next((one for one in deletes if one.number > after and one.status != 429), None)
    return Reservation(refused, called, next((one for one in about if one.what == "gone"), None))


class AzureSummary(CloudSummary, frozen=True, kw_only=True):
    """`reserved` is what Azure said, and `refused` how often; `early` are deletes that came before it was over, `late`
    is how long after it the next one came. `across_kill`: a replica was killed meanwhile."""

    claim: str
    interface: str
    reserved: timedelta
    refused: int
    early: int
    late: timedelta | None
    across_kill: bool
    gone: bool


def reckon_azure(found: Subscription, *, killed: Collection[float], took: timedelta | None) -> AzureSummary:
    """As it was at the subscription's last look."""
    told = read(found.entries, found.ours)
    before, now = found.strangers
    return AzureSummary(
        claim=CALLED,
        interface=INTERFACE,
        reserved=SPAN,
        refused=len(told.refused),
        early=told.early,
        late=told.late,
        across_kill=told.outlived(killed),
        gone=not found.there,
        kept=len(now),
        to_keep=len(before),
        touched=sorted(found.touched),
        calls=len(found.asked),
        took=took,
    )


def judge_azure(summary: AzureSummary) -> list[str]:
    """What is wrong; nothing where all went well."""
    problems, interface = [], f"interface {summary.interface}"
    if not summary.refused:
        problems.append(f"{interface} was reserved, and no delete was refused for that")
    if summary.early:
        problems.append(f"{summary.early} deletes of {interface} came before its reservation was over")
    if summary.refused and summary.late is None:
        problems.append(f"nobody came again for {interface} after its reservation")
    if summary.late is not None and summary.late > _LATEST:
        late = summary.late.total_seconds()
        problems.append(f"{interface} was deleted {late:.1f} s after its reservation, not at the first moment")
    if not summary.gone:
        problems.append(f"not gone at Azure: {summary.interface}")
    return problems + summary.harm("Azure")
