"""Azure subscription of the demo: what exists of every node, resources of others that resemble it, and what is left.
Everything is read from the stand-in's own list and journal, never from Knell."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from service.sources.karpenter_azure import AKS_MACHINE_TAG, CLUSTER_TAG, NODEPOOL_TAG, resource_name
from standins.azure import (
    GROUP,
    REGION,
    SUBSCRIPTION,
    AzureBehaviour,
    AzureJournalEntry,
    BucketSize,
    Disk,
    LocalAzure,
    Nic,
    PublicIp,
    ResourceState,
    Vm,
    id_of,
)
from standins.azure.resources import NewResource, ResourceKind, kind_of
from standins.demo.fleet import POOL, DemoNode, Fleet

CLUSTER: Final = "shop"
RATE: Final = 15.0
"""Seconds of the stand-in's clock in one real second."""
RESERVED: Final = 180.0
"""Seconds of the stand-in's clock."""
SPAN: Final = timedelta(seconds=RESERVED / RATE)
"""Length of the reservation as Azure's answer states it: real seconds of the caller."""
BEHAVIOUR: Final = AzureBehaviour(
    # A delete during the reservation starts it anew, so that any call that comes early is seen.
    refusal_renews=True,
    # The network's limit, of which no header tells, is far lower than documented: others use the subscription too.
    network_changes=BucketSize(8, 2 / RATE),
)
LOCATION: Final[dict[str, Any]] = {
    "subscription": SUBSCRIPTION,
    "resource_group": GROUP,
    "region": REGION,
    "cluster": CLUSTER,
}
"""An entry of the setting azure.nodes."""
NAMES: Final[dict[ResourceKind, str]] = {
    "vm": "virtual machines",
    "nic": "network interfaces",
    "disk": "disks",
    "ip": "public addresses",
}
_TAGS: Final = {CLUSTER_TAG: CLUSTER, NODEPOOL_TAG: POOL}
_CHANGES: Final = ("put", "update", "delete")
_CODE: Final = "NicReservedForAnotherVm"


@dataclass(frozen=True, slots=True)
class Reservation:
    """Deletes of the reserved interface: `refused` came during the reservation, `called` is the first one after it."""

    refused: tuple[AzureJournalEntry, ...] = ()
    called: AzureJournalEntry | None = None

    @property
    def until(self) -> float | None:
        """End of the reservation by the wall clock, as the last refusal stated it."""
        return self.refused[-1].real + SPAN.total_seconds() if self.refused else None

    @property
    def early(self) -> int:
        """Deletes that came although an earlier refusal had named the end of the reservation."""
        return max(0, len(self.refused) - 1)

    @property
    def late(self) -> timedelta | None:
        """From the end of the reservation to the next call, by the stand-in's clock."""
        if not self.refused or self.called is None:
            return None
        return timedelta(seconds=round((self.called.at - self.refused[-1].at - RESERVED) / RATE, 3))

    def spans(self, moment: float | None) -> bool:
        """Whether the moment lies between the first refusal and the next call."""
        if moment is None or not self.refused or self.called is None:
            return False
        return self.refused[0].real < moment < self.called.real


def read_reservation(entries: Sequence[AzureJournalEntry], interface: str) -> Reservation:
    """The interface by its id in lower case."""
    deletes = [one for one in entries if one.operation == "nic.delete" and one.id.lower() == interface]
    refused = tuple(one for one in deletes if one.code == _CODE)
    after = refused[-1].number if refused else -1
    # A call that was throttled did not reach the interface.
    return Reservation(refused, next((one for one in deletes if one.number > after and one.status != 429), None))


class AzureSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`left` had to be deleted and exists; `missing` had to stay and does not exist; `touched` had to stay and was
    named in a call that changes something; `twice` was deleted more than once. `reservations` are deletes that Azure
    refused because the interface was reserved, `early` those of them that came before the end it had named, and `late`
    is how long after it the next one came. `across_kill`: a replica was killed while the reservation lasted."""

    resources: int
    removed: int
    left: list[str]
    kept: int
    missing: list[str]
    touched: list[str]
    twice: list[str]
    interface: str
    reserved: timedelta
    reservations: int
    early: int
    late: timedelta | None
    across_kill: bool
    calls: int
    throttled: int
    refused: dict[str, int]


class AzureSubscription:
    """State as of the last `refresh`. Ids are in lower case."""

    def __init__(self, azure: LocalAzure, fleet: Fleet) -> None:
        self._azure, self._fleet = azure, fleet
        self._by_node: dict[str, frozenset[str]] = {}
        self._kinds: dict[str, ResourceKind] = {}
        self._existing: frozenset[str] = frozenset()
        self._to_keep: frozenset[str] = frozenset()
        self.interface = resource_name(fleet.reserved.name)
        self.interface_id = id_of(SUBSCRIPTION, GROUP, "nic", self.interface).lower()
        self.entries: list[AzureJournalEntry] = []

    # ---- creation

    async def build(self) -> None:
        """Waits for the stand-in."""
        await self._azure.wait_until_ready()
        for node in self._fleet.nodes:
            made = list(_resources(node))
            await self._azure.make(*made)
            if node.outcome == "removed":
                kinds = {_id(one, kind_of(one)): kind_of(one) for one in made}
                self._by_node[node.name] = frozenset(kinds)
                self._kinds |= kinds
        await self._azure.make(*_foreign(self._fleet))
        await self.refresh()
        self._to_keep = self._existing - self._kinds.keys()

    def provider_id(self, node: DemoNode) -> str:
        """Empty for a node that never had a machine."""
        if node.leftover != "machine":
            return ""
        return f"azure://{id_of(SUBSCRIPTION, GROUP, 'vm', resource_name(node.name))}"

    async def reserve(self) -> None:
        """Reserves the interface from now on."""
        await self._azure.reserve(self.interface, f"aks-{POOL}-other", RESERVED)

    # ---- state

    async def refresh(self) -> None:
        """Raises LocalAzureFailed where the stand-in does not answer."""
        self._existing = frozenset(_id(one, one.kind) for one in await self._azure.there())
        self.entries += await self._azure.journal(len(self.entries))

    def progress(self) -> dict[str, tuple[int, int]]:
        """How many are gone, of how many that have to go, by kind in the order in which they go."""
        found: dict[str, tuple[int, int]] = {}
        for kind, name in NAMES.items():
            ids = {one for one, its in self._kinds.items() if its == kind}
            found[name] = (len(ids - self._existing), len(ids))
        return found

    @property
    def total(self) -> tuple[int, int]:
        return len(self._kinds.keys() - self._existing), len(self._kinds)

    @property
    def nodes_gone(self) -> int:
        """Nodes of which nothing is left."""
        return sum(ids.isdisjoint(self._existing) for ids in self._by_node.values())

    @property
    def finished(self) -> bool:
        return not self._kinds.keys() & self._existing

    @property
    def reservation(self) -> Reservation:
        return read_reservation(self.entries, self.interface_id)

    @property
    def calls(self) -> list[AzureJournalEntry]:
        return [one for one in self.entries if one.what == "request" and not one.setup]

    @property
    def throttled(self) -> int:
        return sum(one.status == 429 for one in self.calls)

    # ---- the end

    def summary(self, killed_at: float | None) -> AzureSummary:
        """`killed_at` is when, by the wall clock, a replica was killed."""
        to_remove = self._kinds.keys()
        changes = [one for one in self.calls if one.operation.partition(".")[2] in _CHANGES]
        deleted = Counter(one.id.lower() for one in changes if one.operation.endswith(".delete") and one.status == 202)
        reservation = self.reservation
        return AzureSummary(
            resources=len(to_remove),
            removed=len(to_remove - self._existing),
            left=_names(to_remove & self._existing),
            kept=len(self._to_keep & self._existing),
            missing=_names(self._to_keep - self._existing),
            touched=_names({one.id.lower() for one in changes} - to_remove),
            twice=_names({one for one, times in deleted.items() if times > 1}),
            interface=self.interface,
            reserved=SPAN,
            reservations=len(reservation.refused),
            early=reservation.early,
            late=reservation.late,
            across_kill=reservation.spans(killed_at),
            calls=len(self.calls),
            throttled=self.throttled,
            # That a resource does not exist is an answer, not a refusal.
            refused=dict(Counter(one.code for one in self.calls if one.code and one.status != 404)),
        )


def _resources(node: DemoNode) -> Iterator[NewResource]:
    name = resource_name(node.name)
    match node.leftover:
        case "machine":
            yield Nic(name=name, tags=_TAGS, vm=name)
            yield Disk(name=name, tags=_TAGS, vm=name)
            yield Vm(name=name, tags=_TAGS, nics=(name,), disk=name)
        case "interface and disk":
            yield Nic(name=name, tags=_TAGS)
            yield Disk(name=name, tags=_TAGS)
        case "interface and address":
            yield PublicIp(name=name, tags=_TAGS, nic=name)
            yield Nic(name=name, tags=_TAGS, public_ip=name)
        case "interface":
            yield Nic(name=name, tags=_TAGS)


def _foreign(fleet: Fleet) -> Iterator[NewResource]:
    """Resources that have the names of nodes that are deleted and are not theirs, by group, tag or name."""
    name = resource_name(fleet.reserved.name)
    yield Nic(name=name, tags=_TAGS, group="mc_elsewhere")
    yield Disk(name=name, tags={**_TAGS, CLUSTER_TAG: f"{CLUSTER}-2"})
    yield PublicIp(name=name, tags={**_TAGS, AKS_MACHINE_TAG: fleet.reserved.name})
    yield Nic(name=f"{name}-2")


def _id(one: ResourceState | NewResource, kind: ResourceKind) -> str:
    return id_of(one.subscription, one.group, kind, one.name).lower()


def _names(ids: Iterable[str]) -> list[str]:
    """Group, type and name: /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/PROVIDER/TYPE/NAME."""
    return sorted("/".join(one.split("/")[part] for part in (4, 7, 8)) for one in ids)
