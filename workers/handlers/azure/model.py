"""What the parts of the Azure side hand each other: where, whose, and a resource as it was read.
An owner travels in every target's data, so that an attempt needs no plan; it holds names, never a secret."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from service.contract import Draw, Limit
from service.settings import AzureNodes

PROVIDER: Final = "azure"


class Where(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource group, and as whom calls are made there: an empty client id is the process's own identity."""

    subscription: str
    group: str
    region: str
    client_id: str = ""

    @classmethod
    def of(cls, nodes: AzureNodes) -> "Where":
        # Azure compares without case: one spelling, so that lanes and budgets are the same for all.
        return cls(
            subscription=nodes.subscription.lower(), group=nodes.resource_group.lower(), region=nodes.region,
            client_id=(nodes.client_id or "").lower(),
        )  # fmt: skip

    @property
    def budget(self) -> str:
        """PROVIDER/SUBSCRIPTION, whose quotas are drawn on."""
        return f"{PROVIDER}/{self.subscription}"

    @property
    def principal(self) -> str:
        return self.client_id or "own"

    def lane(self, operation: str) -> str:
        """The principal is part of it: each has a quota of its own."""
        front = f"{self.budget}/{self.region}"
        return f"{front}/{self.client_id}/{operation}" if self.client_id else f"{front}/{operation}"

    def id(self, kind: str, name: str) -> str:
        """As Azure names it, in small letters."""
        return f"/subscriptions/{self.subscription}/resourcegroups/{self.group}/providers/{kind}/{name}".lower()


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The NodeClaim whose resources are meant, and its cluster as their tags name it. `judged` is the provider's own
    id of the very resource that was judged, where it is known before the first read."""

    where: Where
    source: str
    claim: str
    cluster: str
    judged: str = ""
    # When the claim was made, in milliseconds; 0 where it is not known, as of an orphan's.
    made: int = 0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as a GET or a list showed it. `guid` tells it from a later one of the same name; `used_by` is what it
    is attached to, as an id in small letters; `facts` is what else its kind has to know."""

    kind: str
    name: str
    guid: str
    tags: Mapping[str, str]
    state: str = ""
    used_by: str = ""
    facts: tuple[str, ...] = ()
    # When it was made, where Azure tells.
    made: datetime | None = None

    @property
    def going(self) -> bool:
        return self.state.lower() == "deleting"


class Accepted(msgspec.Struct, frozen=True):
    """A delete was answered. `gone` is the provider's word that there was nothing: no proof, but a reason to look at
    once; else `after` is when it says that looking makes sense."""

    gone: bool
    after: timedelta | None = None


class Meter(Protocol):
    """Counts what calls draw, and hears what their answers say about it."""

    async def draw(self, draws: Sequence[Draw]) -> None:
        """Before a call. Raises where there is no room for it."""

    async def answered(self, draw: Draw, left: float | None) -> None:
        """A call came back; `left` is what it told of the limit."""

    async def refused(self, draw: Draw, wait: timedelta | None) -> None: ...


class Quota(Protocol):
    """The shared budgets, for calls that are not made in a lane."""

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        """Zero: the tokens are ours. Else nothing was taken, and this is when to come again."""

    async def refused(self, place: str, limit: Limit, wait: timedelta | None) -> None: ...

    async def answered(self, place: str, limit: Limit, left: float | None) -> None: ...
