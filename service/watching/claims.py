"""Whose name an open deletion is in: of two sources that watch the same object only one has it carried out.
What is in the name of a source that is declared no more would wait for ever, and makes room for the next round."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.contract import Event
from service.contract.traits import traits_of
from service.engine.endings import FINAL
from service.engine.withdrawal import withdraw
from service.watching.assignment import Assignment
from service.watching.reporting import Report

_NOT_BEGUN: Final = frozenset({"published", "waiting", "held"})


class _Told(msgspec.Struct):
    source: str = ""


_told = msgspec.json.Decoder(_Told).decode


class Claims:
    """Of one strand. What is found between `begin` and `end` stays the source's trouble until a list finds none.
    `later` are uids of objects that go in the name of a source with another finalizer first."""

    def __init__(self, assignment: Assignment, report: Report, label: str) -> None:
        self._assignment, self._report = assignment, report
        self._where = f"claims {label}".strip()
        self._finalizer = assignment.traits.finalizer
        self._found = False
        self.later: set[str] = set()

    def begin(self) -> None:
        self._found = False
        self.later.clear()

    async def end(self) -> None:
        if not self._found:
            await self._report.fine(self._where)

    async def compare(self, events: Sequence[Event], states: Sequence[str]) -> list[str]:
        """In whose name each deletion that was known already is; empty where it is ours, or nobody can tell."""
        found = [""] * len(events)
        known = [place for place, state in enumerate(states) if state != "added"]
        installation = self._assignment.installation
        for number, shard in enumerate(installation.shards):
            mine = [place for place in known if installation.keys.shard_of(events[place].deletion) == number]
            rows = await shard.recall([events[place].deletion for place in mine], ("source", "event")) if mine else []
            for place, (source, told) in zip(mine, rows, strict=True):
                named = source or _source_in(told)
                found[place] = "" if named == self._assignment.name else named
        for event, state, source in zip(events, states, found, strict=True):
            self.later.discard(event.uid)
            if source in installation.settings.sources and state not in FINAL:
                left = f"what only {self._assignment.name} would remove is left behind"
                if traits_of(installation.settings.sources[source].collector).finalizer != self._finalizer:
                    # Ours holds it back all the same, and then it is published in our name.
                    self.later.add(event.uid)
                    left = f"what {self._assignment.name} would remove waits for that"
                await self._trouble(
                    f"{event.namespace}/{event.name} is also an object of source {source}, and goes in its name: "
                    f"{left}; let their selectors exclude each other"
                )
        return found

    async def make_room(self, events: Sequence[Event], states: Sequence[str]) -> list[str]:
        """The states as they are after what waits in the name of a source that is no more was dropped. Nothing of it
        has begun; the object itself is still held back, and its deletion is published anew."""
        after = list(states)
        sources = await self.compare(events, states)
        for place, (event, source) in enumerate(zip(events, sources, strict=True)):
            if not source or source in self._assignment.installation.settings.sources or states[place] in FINAL:
                continue
            if states[place] in _NOT_BEGUN:
                self._assignment.act()
                why = f"source {source} is declared no more; published anew by source {self._assignment.name}"
                if await withdraw(self._assignment.installation, event.deletion, why):
                    self._report.warned("deletion dropped", deletion=event.deletion, reason=why)
                    after[place] = "dropped"
            else:
                await self._trouble(
                    f"{event.namespace}/{event.name} began to be removed by source {source}, which is declared no "
                    f"more; declare it again until that has ended"
                )
        return after

    async def _trouble(self, what: str) -> None:
        # The first one stands for all: each of them would be a line of its own in the log.
        if not self._found:
            self._found = True
            await self._report.trouble(self._where, what)


def _source_in(event: str) -> str:
    """Until it is planned, the record keeps the event as one text."""
    try:
        return _told(event).source
    except msgspec.DecodeError:
        return ""
