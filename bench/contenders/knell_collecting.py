"""Knell on an Azure subscription: a process of `knell run` whose sweeps find the interfaces without a NodeClaim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from bench import nodeclaims
from bench.azure_subscription import Subscription
from bench.bench_server import BenchServer
from bench.contenders.knell_settings import SOURCE, KnellCloudProcess, common, launched, scaled, shorter
from service.contract import Draw
from service.sources.karpenter_azure import KARPENTER_AZURE, NODECLAIMS
from workers.providers.azure.limits import LATE, Call, call_draws
from workers.providers.azure.model import AzureScope

RESERVE: Final = 0.0
"""The part of every quota that is left to others: there are none."""

# Patterns of limits, a call that draws on them, and which of those that it draws on.
LIMITS: Final[Mapping[str, tuple[Call, int]]] = {
    "*/arm.deletes": ("network.delete", 0),
    "*/network.writes": ("network.delete", 1),
    "*/compute.vm-deletes": ("compute.delete", 1),
    "*/arm.reads": ("network.read", 0),
    "*/network.reads": ("network.read", 1),
    "*/compute.reads": ("compute.read", 1),
    "*/compute.disks": ("disk.delete", 1),
    "*/graph.queries": ("graph", 0),
}
READS: Final = ("*/arm.reads", "*/network.reads", "*/compute.reads")
_UNLIMITED: Final = {"rate": 100_000.0, "capacity": 100_000}


def document(server: BenchServer, there: Subscription, namespace: str, every: timedelta) -> dict[str, Any]:
    """What would stand in the file of settings. Where nothing limits reads, neither does Knell."""
    nodes = {
        "subscription": there.number,
        "resource_group": there.group,
        "region": there.region,
        "cluster": there.cluster,
    }
    source = {"resource": NODECLAIMS, "collector": KARPENTER_AZURE, "mode": "observe"}
    pause = shorter(every, there.scale)
    limits = {pattern: scaled(sample_of(there.region, pattern).limit, there.scale, LATE) for pattern in LIMITS}
    if not there.behaviour.read_quotas:
        limits |= dict.fromkeys(READS, _UNLIMITED)
    return common(server, namespace, source, there.scale) | {
        "azure": {
            "endpoint": there.address,
            "nodes": {SOURCE: [nodes]},
            "reserve": RESERVE,
            # Orphaned in two passes is the same as for so long.
            "sweep": {"every": pause, "age": pause / 2},
        },
        "limits": limits,
    }


def sample_of(region: str, pattern: str) -> Draw:
    call, place = LIMITS[pattern]
    return call_draws(AzureScope(subscription="", group="", region=region), call, RESERVE)[place]


@contextmanager
def begin(server: BenchServer, every: timedelta, there: Subscription, interfaces: int) -> Iterator[KnellCloudProcess]:
    """`every` is how often it sweeps, in the subscription's time."""
    del interfaces
    cluster = server.cluster
    cluster.run(nodeclaims.define)
    with launched(document(server, there, cluster.namespace(), every), there.identity) as program:
        yield KnellCloudProcess(server, program)
