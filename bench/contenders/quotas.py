"""The limit of collecting interfaces on Azure: as soon as the quotas have let a delete of each through.

It is worked out from the quotas of the stand-in, and not measured; lists, reads and refused deletes would come on top.
"""

from __future__ import annotations

from bench.bench_server import BenchServer
from bench.contenders.collecting import RESERVED_FOR, behaviour_for
from bench.contenders.protocol import Collected, Kind, NotSupportedError, Orphans, Reservations
from bench.contenders.unsupported import CloudOnly
from standins.azure import AzureBehaviour


def seconds_for(interfaces: int, behaviour: AzureBehaviour) -> float:
    """From the first delete to the last interface gone: buckets are full at the beginning, the slower one decides, the
    reserved ones can't go before their time, and the last one goes as slowly as any."""
    waits = [
        (interfaces - size.capacity) / size.refill for size in (behaviour.arm_deletes, behaviour.network_changes)
    ]  # fmt: skip
    return max(RESERVED_FOR, *waits) + behaviour.nic_goes


class Quotas(CloudOnly):
    name = "quotas"
    kind: Kind = "limit"
    settings = (
        "worked out: full token buckets of Resource Manager and of the network provider and what flows into them, one "
        "delete for each interface and no other call, the reserved ones when they may go"
    )
    lacks = "is an Azure subscription's limit, of which nothing else is known"

    def version(self) -> str:
        return "as documented"

    def collect(self, server: BenchServer, orphans: Orphans) -> Collected:
        del server
        return Collected(orphans.interfaces, seconds_for(orphans.interfaces, behaviour_for(orphans)))

    def outwait(self, server: BenchServer, reservations: Reservations) -> list[float]:
        del server, reservations
        raise NotSupportedError("an interface may go as soon as its reservation ends")
