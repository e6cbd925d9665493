"""Data types of the Azure handlers: scope of calls, owner of a target, a resource as read, progress of a removal.
AzureOwner is stored in every target's data, so that an attempt needs no plan; it contains names, never a secret."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from service.contract import Draw, Limit
from service.settings import AzureNodes

PROVIDER: Final = "azure"


class AzureScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource group and the identity for calls in it; an empty client id is the process's own identity."""

    subscription: str
    group: str
    region: str
    client_id: str = ""

    @classmethod
    def of(cls, nodes: AzureNodes) -> "AzureScope":
        # Azure ignores case: in lower case, lanes and budgets are the same for all spellings.
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
        """Contains the identity, because each has a quota of its own."""
        front = f"{self.budget}/{self.region}"
        return f"{front}/{self.client_id}/{operation}" if self.client_id else f"{front}/{operation}"

    def id(self, kind: str, name: str) -> str:
        """The Azure resource id, in lower case."""
        return f"/subscriptions/{self.subscription}/resourcegroups/{self.group}/providers/{kind}/{name}".lower()


class AzureOwner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The NodeClaim that owns a target, and the cluster's name in the tags. `judged` is the provider's id of the
    resource that a sweep checked, if the target comes from one."""

    where: AzureScope
    source: str
    claim: str
    cluster: str
    judged: str = ""
    # When the NodeClaim was created, in milliseconds; 0 if unknown, as for an orphan.
    made: int = 0


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


class Accepted(msgspec.Struct, frozen=True):
    """Response to a delete. With `gone` the provider says that there was nothing to delete: no proof, but a reason to
    read at once; otherwise `after` is when a read makes sense."""

    gone: bool
    after: timedelta | None = None


class AzureRemovalProgress(NamedTuple):
    """Progress of one target's removal, stored as text in the job's record between attempts: the guid of the checked
    resource, how many deletes were accepted, and `looks`, the reads since the last one. `machine` is the guid of a
    machine that must be deleted before the interface."""

    guid: str
    deletes: int = 0
    looks: int = 0
    machine: str = ""

    @classmethod
    def read(cls, text: str, judged: str) -> "AzureRemovalProgress":
        """`judged` is the guid if no earlier attempt has stored anything."""
        guid, _, rest = text.partition(" ")
        deletes, looks, machine = [*rest.split(" "), "", "", ""][:3]
        if deletes.isdecimal() and looks.isdecimal():
            return cls(guid, int(deletes), int(looks), machine)
        return cls(judged)

    def __str__(self) -> str:
        return f"{self.guid} {self.deletes} {self.looks} {self.machine}".rstrip()


class CallMeter(Protocol):
    """Draws the tokens of calls, and takes what their responses say about limits."""

    async def draw(self, draws: Sequence[Draw]) -> None:
        """To be called before a call. Raises AzureError if there are no tokens for it."""

    async def answered(self, draw: Draw, left: float | None) -> None:
        """A call succeeded; `left` is what its response said remains of the limit."""

    async def refused(self, draw: Draw, wait: timedelta | None) -> None: ...


class AzureQuota(Protocol):
    """The shared budgets, for calls outside of lanes (see workers.runtime.call_budget)."""

    async def draw(self, place: str, draws: Sequence[Draw], *, urgent: bool = True) -> timedelta:
        """Returns zero if the tokens were taken, otherwise the time after which to try again."""

    async def refused(self, place: str, limit: Limit, wait: timedelta | None) -> None: ...

    async def answered(self, place: str, limit: Limit, left: float | None) -> None: ...
