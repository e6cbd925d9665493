"""Protocols of the record of kept resources: what collectors and handlers read from it, and what a collector returns
when it has marked what stays. They hide where the record is stored."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

import msgspec

from service.contract.kept import NOTHING_ABANDONED, Abandoned, Decision
from service.kubernetes import Live
from workers.handlers.objects import About


class Memory(Protocol):
    async def abandoned(self, deletion: str) -> Abandoned:
        """What a person abandoned of this deletion."""

    async def decisions(self, place: str, name: str) -> Sequence[Decision]:
        """What was kept there under that name, and with which objects. Raises Undecodable."""


class NoMemory:
    """For whoever only shows a plan: nothing was ever decided."""

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return NOTHING_ABANDONED

    async def decisions(self, place: str, name: str) -> Sequence[Decision]:
        del place, name
        return ()


OTHERS: Final = "any other"
"""In the place of an id: resources that a decision does not name."""


class TagRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What came of taking the service's tag off one resource of a decision. `others` is the value of a tag that the
    decision of another object wrote, and that stays; `failed` says why the tag may still be there. Without either the
    resource carries no such tag any more, or is gone."""

    kind: str
    id: str
    removed: bool = False
    others: str = ""
    failed: str = ""


class TaggedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that carries the service's tag, with the value of it."""

    kind: str
    id: str
    value: str


class TagSearch(msgspec.Struct, frozen=True, kw_only=True):
    """What carries the tag in one place; `unread` says what could not be read, and why: there may be more."""

    place: str
    found: list[TaggedResource]
    unread: list[str] = []


class RetainedTags(Protocol):
    """The tags of one provider that decisions wrote."""

    def remove(self, decision: Decision, chosen: Sequence[Decision]) -> AsyncIterator[TagRemoval]:
        """Takes the tag off the resources that the decision names and, where it says that there may be others, off
        those as well. Every resource is read first: the tag goes only if one of the `chosen` decisions wrote it."""

    async def find(self, place: str, known: Sequence[Decision]) -> TagSearch:
        """Everything in a place that carries the tag; `known` are the decisions about that place, which say how it is
        reached."""


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is about to be released although something of it stays. `live` is the object as it was read just
    now, None for one that is gone; with `whole` everything stays that it owned, else only what was `abandoned`. `mark`
    is the value of the tag. With `namesake` another object has its name by now."""

    about: About
    live: Live | None
    abandoned: Abandoned
    whole: bool
    mark: str
    at: int
    namesake: bool = False


class NotMarked(Exception):
    """What stays can't be told or marked; with `again` it may pass by itself, `after` so long where that is known.
    `decisions` are what can be said without any mark."""

    def __init__(
        self, reason: str, decisions: Sequence[Decision] = (), *, again: bool = True, after: timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.decisions, self.again, self.after = tuple(decisions), again, after


@runtime_checkable
class Keeper(Protocol):
    """A collector that recognises resources by a name that may come back."""

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        """Marks what stays, where settings and permissions allow it, and says what is to be remembered of it. Changes
        nothing else, and does not wait for room in a budget. What it marked before a failure it finds marked when it is
        asked again. Raises NotMarked."""
