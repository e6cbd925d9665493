"""Conflicts between sources that watch the same object: only one of them can have its deletion. The conflict is
reported as a problem; a deletion of a source that is no longer declared is withdrawn, so that this source can publish
its own."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.contract import Event
from service.engine.outcomes import FINAL
from service.engine.withdrawal import withdraw
from service.sources.registry import source_named
from service.watching.assignment import Assignment
from service.watching.source_status import SourceStatus

_NOT_BEGUN: Final = frozenset({"published", "waiting", "held"})


class _EventSource(msgspec.Struct):
    source: str = ""


_decode_event_source = msgspec.json.Decoder(_EventSource).decode


class SourceConflicts:
    """Of one list scope. A conflict stays a problem of the source until a list from `begin` to `end` finds none.
    `deferred` are the uids of objects whose deletion by a source with another finalizer comes first."""

    def __init__(self, assignment: Assignment, status: SourceStatus, label: str) -> None:
        self._assignment, self._status = assignment, status
        self._where = f"conflicts {label}".strip()
        self._finalizer = assignment.declaration.finalizer
        self._found = False
        self.deferred: set[str] = set()

    def begin(self) -> None:
        self._found = False
        self.deferred.clear()

    async def end(self) -> None:
        if not self._found:
            await self._status.clear_problem(self._where)

    async def find_sources(self, events: Sequence[Event], states: Sequence[str]) -> list[str]:
        """The source of each deletion that was published before; empty if it is this one, or unknown."""
        found = [""] * len(events)
        known = [place for place, state in enumerate(states) if state != "added"]
        installation = self._assignment.installation
        for number, shard in enumerate(installation.shards):
            mine = [place for place in known if installation.keys.shard_of(events[place].deletion) == number]
            rows = (
                await shard.read_deletions([events[place].deletion for place in mine], ("source", "event"))
                if mine
                else []
            )
            for place, (source, event_text) in zip(mine, rows, strict=True):
                named = source or _source_in(event_text)
                found[place] = "" if named == self._assignment.name else named
        for event, state, source in zip(events, states, found, strict=True):
            self.deferred.discard(event.uid)
            if source in installation.settings.sources and state not in FINAL:
                left = f"what only {self._assignment.name} would remove is left behind"
                if source_named(installation.settings.sources[source].collector).finalizer != self._finalizer:
                    # Our finalizer keeps the object after that, and then its deletion is published by this source.
                    self.deferred.add(event.uid)
                    left = f"what {self._assignment.name} would remove waits for that"
                await self._set_problem(
                    f"{event.namespace}/{event.name} is also an object of source {source}, which carries out its "
                    f"deletion: {left}; let their selectors exclude each other"
                )
        return found

    async def withdraw_undeclared(self, events: Sequence[Event], states: Sequence[str]) -> list[str]:
        """Withdraws deletions of undeclared sources that have not begun, and returns the states after that. The
        finalizer still keeps the object, and its deletion is published again."""
        after = list(states)
        sources = await self.find_sources(events, states)
        for place, (event, source) in enumerate(zip(events, sources, strict=True)):
            if not source or source in self._assignment.installation.settings.sources or states[place] in FINAL:
                continue
            if states[place] in _NOT_BEGUN:
                self._assignment.require_lease()
                why = f"source {source} is no longer declared; published again by source {self._assignment.name}"
                if await withdraw(self._assignment.installation, event.deletion, why):
                    self._status.warning("deletion dropped", deletion=event.deletion, reason=why)
                    after[place] = "dropped"
            else:
                await self._set_problem(
                    f"{event.namespace}/{event.name} is being deleted by source {source}, which is no longer declared; "
                    f"declare it again until that has ended"
                )
        return after

    async def _set_problem(self, what: str) -> None:
        # Only the first one, to log one line for all of them.
        if not self._found:
            self._found = True
            await self._status.set_problem(self._where, what)


def _source_in(event: str) -> str:
    """The deletion record has the event as JSON until it is planned."""
    try:
        return _decode_event_source(event).source
    except msgspec.DecodeError:
        return ""
