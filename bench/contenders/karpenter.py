"""Karpenter's provider for Azure: the calls of its collection of interfaces, made by a program of ours.

Its own code was run beforehand; ours is compared with the time that it needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from bench.azure_subscription import Subscription
from bench.bench_server import BenchServer
from bench.contenders import collecting
from bench.contenders.cloud_process import PeerCloudProcess
from bench.contenders.program import running
from bench.contenders.protocol import Collected, Kind, NotSupportedError, Orphans, Reservations
from bench.contenders.unsupported import CloudOnly
from bench.order import AzureOrder

OUTWAITED: Final = 20.0
"""How many times as fast the subscription's time runs where the peer waits for reservations: five minutes between two
passes are nothing that one would wait for, and what takes it a moment is nothing beside them."""


class Known(NamedTuple):
    """What its own code took, in seconds, and what part of its deletes was answered 429."""

    seconds: float
    throttled: float


OWN_CODE: Final[Mapping[int, Known]] = {300: Known(320, 0.02), 1000: Known(375, 0.64), 3000: Known(1175, 0.79)}
"""By the number of interfaces, where Resource Manager's refusals say to wait for a second and reads are not limited."""
NEAR: Final = 0.2
"""How far ours may be from that."""


def order_for(there: Subscription, interfaces: int) -> AzureOrder:
    return AzureOrder(
        address=there.address,
        token="karpenter",  # noqa: S106  # a name: the stand-in knows no secret
        subscription=there.number,
        group=there.group,
        cluster=there.cluster,
        interfaces=interfaces,
        scale=there.scale,
    )


@contextmanager
def begin(there: Subscription, interfaces: int) -> Iterator[PeerCloudProcess]:
    command = [sys.executable, "-m", "bench.peers.karpenter_peer", order_for(there, interfaces).encode()]
    with running("karpenter", command, {}) as program:
        yield PeerCloudProcess(program)


class Karpenter(CloudOnly):
    name = "karpenter"
    kind: Kind = "collector"
    settings = (
        "its provider's collection of interfaces written anew: lists by Resource Graph, then a hundred interfaces at a "
        "time, each read, deleted and asked after until it is gone; four attempts of each call as in the Azure SDK for "
        "Go; what fails is left to the next pass, 300 s after the last one ended; its waits are as much shorter as "
        f"time is faster, which for reservations is {OUTWAITED:g} times; its own code took "
        + ", ".join(f"{known.seconds:,g} s for {count:,} ({known.throttled:.0%})" for count, known in OWN_CODE.items())
        + " with that part of its deletes throttled"
    )
    lacks = "knows nothing but an Azure subscription"

    def version(self) -> str:
        return "the algorithm of 1.14.0"

    def collect(self, server: BenchServer, orphans: Orphans) -> Collected:
        del server
        if orphans.read_quotas:
            raise NotSupportedError("does not notice deletes that succeeded where its polls are throttled")
        return collecting.collect(begin, orphans)

    def outwait(self, server: BenchServer, reservations: Reservations) -> list[float]:
        del server
        return collecting.outwait(begin, reservations, OUTWAITED)
