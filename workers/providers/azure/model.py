"""Data types of the Azure provider: scope of calls, and a resource as read."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from service.contract import Draw

PROVIDER: Final = "azure"


class NamedGroup(Protocol):
    """A resource group as settings name it, and the managed identity for it, if it is not the process's own."""

    @property
    def subscription(self) -> str: ...

    @property
    def resource_group(self) -> str: ...

    @property
    def region(self) -> str: ...

    @property
    def client_id(self) -> str | None: ...


class AzureScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource group and the identity for calls in it; an empty client id is the process's own identity."""

    subscription: str
    group: str
    region: str
    client_id: str = ""

    @classmethod
    def of(cls, named: NamedGroup) -> "AzureScope":
        # Azure ignores case: in lower case, lanes and budgets are the same for all spellings.
        return cls(
            subscription=named.subscription.lower(), group=named.resource_group.lower(), region=named.region,
            client_id=(named.client_id or "").lower(),
        )  # fmt: skip

    @property
    def budget(self) -> str:
        """PROVIDER/SUBSCRIPTION, whose quotas are drawn on."""
        return f"{PROVIDER}/{self.subscription}"

    @property
    def place(self) -> str:
        """PROVIDER/SUBSCRIPTION/GROUP, under which decisions to keep resources are stored."""
        return f"{self.budget}/{self.group}"

    @property
    def principal(self) -> str:
        return self.client_id or "own"

    def lane(self, operation: str) -> str:
        """Contains the identity, because each has a quota of its own."""
        front = f"{self.budget}/{self.region}"
        return f"{front}/{self.client_id}/{operation}" if self.client_id else f"{front}/{operation}"

    def id(self, kind: str, name: str) -> str:
        """The Azure resource id, in lower case."""
        return f"/subscriptions/{self.subscription}/resourcegroups/{self.group}/providers/{kind}/{name}".lower()


class AzureResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as a GET or a list showed it. `guid` distinguishes it from a later one of the same name; `used_by` is
    the id of what it is attached to, in lower case; `facts` is for its kind."""

    kind: str
    name: str
    guid: str
    tags: Mapping[str, str]
    state: str = ""
    used_by: str = ""
    facts: tuple[str, ...] = ()
    # When it was created, if Azure says.
    made: datetime | None = None

    @property
    def going(self) -> bool:
        return self.state.lower() == "deleting"


class CallMeter(Protocol):
    """Draws the tokens of calls, and takes what their responses say about limits."""

    async def draw(self, draws: Sequence[Draw]) -> None:
        """To be called before a call. Raises AzureError if there are no tokens for it."""

    async def answered(self, draw: Draw, left: float | None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""

    async def refused(self, draw: Draw, wait: timedelta | None) -> None: ...
