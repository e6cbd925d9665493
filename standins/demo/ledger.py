"""Reads the provider's log as it grows and keeps account of it: what went, what was refused, what waited.
The same account serves the moving picture and the judgement at the end."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from standins.provider import Line

_ACCEPTED: Final = (202, 204)
# Both clocks are the same machine's; what is left is the rounding of the announced time.
_ROUNDING: Final = 0.002
_UNWRITTEN: Final = 3.0
"""Seconds for which an answer may have been in a replica's hand and nowhere else: the timeout of its attempts."""


@dataclass(slots=True)
class _Resource:
    first_call: float = 0.0
    accepted: bool = False
    gone_at: float | None = None
    reserved_until: float | None = None
    told: str = ""
    told_at: float = 0.0


@dataclass(slots=True)
class Ledger:
    log: Path
    ours: frozenset[str]
    statuses: Counter[int] = field(default_factory=Counter)
    removed: int = 0
    repeated: int = 0
    early: int = 0
    late: list[float] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)
    killed: dict[str, float] = field(default_factory=dict)
    """Callers that were killed, and when: what they had just been told, they told nobody."""
    known: dict[str, _Resource] = field(default_factory=dict)
    _offset: int = 0
    _decoder: msgspec.json.Decoder[Line] = field(default_factory=lambda: msgspec.json.Decoder(Line))

    def catch_up(self) -> None:
        """Take in the whole lines that were added since the last time."""
        if not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                self._offset += len(raw)
                self._take(self._decoder.decode(raw))

    @property
    def calls(self) -> int:
        return self.statuses.total()

    @property
    def reservations(self) -> int:
        """Resources that were reserved when they were first to be deleted."""
        return len(self.reserved)

    def left(self) -> list[str]:
        return sorted(name for name in self.ours if (one := self.known.get(name)) is None or one.gone_at is None)

    def waits(self) -> list[float]:
        """Seconds from the first call for a resource to its end."""
        ended = (one for one in self.known.values() if one.gone_at is not None)
        return [one.gone_at - one.first_call for one in ended if one.gone_at is not None]

    def _take(self, line: Line) -> None:
        if line.what == "gone":
            one = self.known.setdefault(line.id, _Resource(first_call=line.at))
            if one.gone_at is None and line.id in self.ours:
                self.removed += 1
            one.gone_at = line.at
        elif line.method == "DELETE":
            self._take_delete(line)

    def _take_delete(self, line: Line) -> None:
        self.statuses[line.status] += 1
        if line.id not in self.ours:
            self.strangers.add(line.id)
        one = self.known.setdefault(line.id, _Resource(first_call=line.arrived))
        # A call that was throttled did not reach the reservation.
        if line.status != 429 and one.reserved_until is not None:
            over = line.arrived - one.reserved_until
            one.reserved_until = None
            if over >= -_ROUNDING:
                self.late.append(max(0.0, over))
            elif not self._died_with(one):
                self.early += 1
        if line.status == 400 and line.reserved_until is not None:
            self.reserved.add(line.id)
            one.reserved_until, one.told, one.told_at = line.reserved_until, line.caller, line.at
        if one.accepted and line.status != 429:
            self.repeated += 1
        one.accepted = one.accepted or line.status in _ACCEPTED

    def _died_with(self, one: _Resource) -> bool:
        """Whether who was told of a reservation may have been killed before it was written down."""
        died = self.killed.get(one.told)
        return died is not None and died - one.told_at < _UNWRITTEN
