"""What one turn of a job leaves for the next: which very resource was judged, and how often a delete was accepted.
It is a short text in the job's record, so that a wait of minutes, another worker and a restart change nothing of it."""

from typing import NamedTuple


class Trail(NamedTuple):
    """`looks` counts those after the last accepted delete; `machine` is the one that has to go before an interface."""

    guid: str
    deletes: int = 0
    looks: int = 0
    machine: str = ""

    @classmethod
    def read(cls, text: str, judged: str) -> "Trail":
        """`judged` stands where no turn has left anything yet."""
        guid, _, rest = text.partition(" ")
        deletes, looks, machine = [*rest.split(" "), "", "", ""][:3]
        if deletes.isdecimal() and looks.isdecimal():
            return cls(guid, int(deletes), int(looks), machine)
        return cls(judged)

    def __str__(self) -> str:
        return f"{self.guid} {self.deletes} {self.looks} {self.machine}".rstrip()
