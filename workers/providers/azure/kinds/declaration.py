"""Declaration of a resource kind on Azure: how it is read and deleted, its lanes and its permissions.
The SDK's models are converted to AzureResource by the functions of each kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workers.providers.azure.limits import Call
from workers.providers.azure.model import AzureResource


@dataclass(frozen=True, slots=True)
class AzureKind:
    """`title` is its name in messages, `type` Azure's name for it; `client` and `collection` locate it in the SDK.
    `reading` and `removing` are the last parts of its lanes, and the calls that are made there: `limits.py` declares
    what they draw on. `host` is the kind of the resource that it is attached to and deleted with."""

    name: str
    title: str
    type: str
    client: Literal["network", "compute"]
    collection: str
    reading: Call
    removing: Call
    shown: Callable[[Any], AzureResource]
    permissions: tuple[str, ...]
    host: "AzureKind | None" = None
    # Why a resource must not be deleted, whoever owns it; empty if it may be.
    spared: Callable[[AzureResource], str] = lambda _: ""

    @property
    def noun(self) -> str:
        """Its title in one word."""
        return self.title.rpartition(" ")[2]


def lower_id(value: Any) -> str:
    """An id for comparison: Azure's casing varies."""
    return str(value or "").lower()


def tags_of(one: Any) -> Mapping[str, str]:
    return dict(one.tags or {})


def state_of(one: Any) -> str:
    """As Azure writes it: some SDK models use enum members, whose string form differs."""
    value = one.provisioning_state
    return str(getattr(value, "value", value) or "")


def id_of(part: Any) -> str:
    return lower_id(part.id) if part is not None else ""
