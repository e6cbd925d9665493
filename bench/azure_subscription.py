"""Azure subscription of one turn: interfaces without a node, the result for each, and the calls that quotas allowed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from bench.cloud_standin import CloudStandin
from bench.objects import each
from service.sources.karpenter_azure import CLUSTER_TAG, NODEPOOL_TAG, resource_name
from standins.azure import (
    GROUP,
    REGION,
    SUBSCRIPTION,
    AzureBehaviour,
    AzureFault,
    AzureJournalEntry,
    BucketSize,
    LocalAzure,
    Nic,
    ResourceGroup,
)

LATENCY: Final = 0.15
"""Seconds of the subscription's time by which every call comes later, as it was when the peer's own code was run."""
RESERVED: Final = "NicReservedForAnotherVm"
_MADE_AT_ONCE: Final = 16


def used(deletes: Sequence[AzureJournalEntry], size: BucketSize) -> float:
    """Part of a quota, of a full bucket and all that flowed in from the first delete to the last one that was let
    through."""
    passed = [entry.at for entry in deletes if entry.status != 429]
    return len(passed) / (size.capacity + size.refill * (passed[-1] - deletes[0].at))


class Subscription(CloudStandin):
    number = SUBSCRIPTION
    group = GROUP
    region = REGION
    cluster = "bench"

    def __init__(self, scale: float, behaviour: AzureBehaviour) -> None:
        slow = AzureFault(what="slow", seconds=LATENCY / scale)
        self.behaviour = msgspec.structs.replace(behaviour, faults=(*behaviour.faults, slow))
        self._azure = LocalAzure(self.behaviour, rate=scale)
        super().__init__(self._azure, scale)
        self.deletes: list[AzureJournalEntry] = []
        """Of interfaces, as they came, whatever became of them."""
        self.gone: dict[str, float] = {}
        """By interface: when it was gone, in the subscription's time."""
        self.begun = False
        """Whether a request was about one of the resources, and not only a list."""

    @property
    def identity(self) -> dict[str, str]:
        """What a process finds in its environment."""
        return dict(self._azure.identity())

    def leave(self, count: int, reserved: float = 0.0) -> list[str]:
        """Makes interfaces of nodes that are no more, and says their names."""
        turn = uuid.uuid4().hex[:6]
        names = [resource_name(f"pool-{turn}-{number:05}") for number in range(count)]
        tags = {CLUSTER_TAG: self.cluster, NODEPOOL_TAG: "default"}
        asyncio.run(self._azure.make(*(Nic(name=name, tags=tags, reserved=reserved) for name in names)))
        return names

    def reserve(self, names: Sequence[str], seconds: float) -> None:
        """From now on."""
        asyncio.run(each(names, lambda name: self._azure.reserve(name, seconds=seconds), _MADE_AT_ONCE))

    def declare(self) -> None:
        """The group, in which nothing need be yet."""
        asyncio.run(self._azure.declare(ResourceGroup(name=self.group, region=self.region)))

    def look(self) -> None:
        """Reads what has happened since the last look."""
        for entry in asyncio.run(self._azure.journal(self._read)):
            self._read = entry.number + 1
            if entry.what == "gone":
                self.gone.setdefault(entry.name, entry.at)
            elif entry.what == "request" and not entry.setup:
                self._count(entry)

    def all_gone(self, names: Collection[str]) -> bool:
        self.look()
        return all(name in self.gone for name in names)

    def _count(self, entry: AzureJournalEntry) -> None:
        self.calls += 1
        self.refused += entry.status == 429
        self.begun = self.begun or entry.operation != "graph.query"
        if entry.operation == "nic.delete":
            self.deletes.append(entry)
