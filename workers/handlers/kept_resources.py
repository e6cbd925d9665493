"""Protocols for resources that are kept on purpose: reading the stored decisions, and tagging the resources.
They hide where the decisions are stored."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final, Protocol, runtime_checkable

import msgspec

from service.contract.kept import NOTHING_ABANDONED, Abandoned, KeepDecision
from service.kubernetes import KubeObject
from workers.handlers.collector import ObjectRef


class KeptRecords(Protocol):
    async def abandoned(self, deletion: str) -> Abandoned:
        """Jobs of this deletion that an operator abandoned."""

    async def abandoned_before(self, deletion: str, plan: int) -> Abandoned:
        """The same, without those of this plan and of later ones."""

    async def given_up(self, deletion: str) -> Abandoned:
        """All abandoned jobs, and the jobs that were given up: their resources are to be kept by now."""

    async def decisions(self, place: str, name: str) -> Sequence[KeepDecision]:
        """Decisions about resources kept in that place under that name. Raises Undecodable."""


class NoKeptRecords:
    """No decisions at all; for commands that only show a plan."""

    async def abandoned(self, deletion: str) -> Abandoned:
        del deletion
        return NOTHING_ABANDONED

    async def abandoned_before(self, deletion: str, plan: int) -> Abandoned:
        del plan
        return await self.abandoned(deletion)

    async def given_up(self, deletion: str) -> Abandoned:
        return await self.abandoned(deletion)

    async def decisions(self, place: str, name: str) -> Sequence[KeepDecision]:
        del place, name
        return ()


OTHERS: Final = "any other"
"""Used instead of an id for resources that a decision does not name."""


class TagRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """Result of removing the service's tag from one resource of a decision. `others` is the value of a tag that belongs
    to another object's decision and stays; `failed` says why the tag may still be there. Without either, the resource
    has no such tag any more, or is gone."""

    kind: str
    id: str
    removed: bool = False
    others: str = ""
    failed: str = ""


class TaggedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource with the service's tag, and the tag's value."""

    kind: str
    id: str
    value: str


class TagSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Tagged resources in one place; `unread` says what could not be read, so there may be more."""

    place: str
    found: list[TaggedResource]
    unread: list[str] = []


class RetainedTags(Protocol):
    """Finds and removes the service's tags at one provider."""

    def remove(self, decision: KeepDecision, chosen: Sequence[KeepDecision]) -> AsyncIterator[TagRemoval]:
        """Removes the tag from the resources that the decision names and, if it says that there may be others, from
        those as well. Every resource is read first: the tag is removed only if one of the `chosen` decisions wrote
        it."""

    async def find(self, place: str, known: Sequence[KeepDecision]) -> TagSearch:
        """Every tagged resource in a place; `known` are the decisions about that place, which say how to reach it."""


class KeepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is about to be released although some of its resources stay. `live` is the object as just read,
    None if it is gone. With `whole` all its resources stay, otherwise only the `abandoned` ones. `mark` is the value of
    the tag. With `namesake` another object has its name now."""

    ref: ObjectRef
    live: KubeObject | None
    abandoned: Abandoned
    whole: bool
    mark: str
    at: int
    namesake: bool = False


class NotMarked(Exception):
    """The kept resources can't be determined or tagged. With `again` that may pass, after `after` if known. `decisions`
    can be stored even so."""

    def __init__(
        self, reason: str, decisions: Sequence[KeepDecision] = (), *, again: bool = True, after: timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.decisions, self.again, self.after = tuple(decisions), again, after


@runtime_checkable
class MarksKept(Protocol):
    """A collector that tags kept resources, because it recognises resources by a name that may be used again."""

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        """Tags the resources that stay, if settings and permissions allow it, and returns the decisions to store.
        Changes nothing else and does not wait for budgets. Safe to repeat after a failure. Raises NotMarked."""
