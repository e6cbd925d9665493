"""Rate limits of Azure: Resource Manager's token buckets per identity, and the providers' own per region.
Names begin with the region, because a budget belongs to a subscription; settings override limits by name."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

from service.contract import Draw, Limit
from workers.handlers.azure.model import PROVIDER, AzureScope

Call = Literal["network.read", "network.delete", "compute.read", "compute.delete", "disk.delete", "tags.write", "graph"]

# Capacity and refill per second.
_ARM: Final = {"reads": (250.0, 25.0), "writes": (200.0, 10.0), "deletes": (200.0, 10.0)}
_NETWORK: Final = {"reads": (10_000.0, 10_000 / 300), "writes": (1000.0, 1000 / 300)}
# Azure documents no figures for these. They are separate, so that throttling by compute does not pause other calls.
_COMPUTE: Final = {"reads": (1000.0, 50.0), "disks": (200.0, 10.0)}
_VM_DELETES: Final = (1500.0, 500 / 60)
# The provider uses a window of five seconds; this bucket never allows more than 15 calls in any five seconds.
_GRAPH: Final = (5.0, 2.0)

LATE: Final = 0.75
"""Seconds from when a lane draws tokens until its call arrives, including the reads before it. Meanwhile our bucket
refills while Azure's, if full, does not: that much is left in ours."""

_SUBSCRIPTION: Final = re.compile(r"x-ms-ratelimit-remaining-subscription-(reads|writes|deletes)", re.IGNORECASE)
_RESOURCE: Final = "x-ms-ratelimit-remaining-resource"
_DELETE_VM: Final = re.compile(r"DeleteVM(?:Subscription)?Maximum;(\d+)", re.IGNORECASE)
_USER_QUOTA: Final = "x-ms-user-quota-remaining"


@lru_cache(maxsize=1024)
def call_draws(where: AzureScope, call: Call, reserve: float) -> tuple[Draw, ...]:
    """What one call draws on; the first of them is Resource Manager's."""
    who, region = f"{where.region}/{where.principal}", where.region
    match call:
        case "network.read":
            return _arm(who, "reads", reserve), _unseen(f"{region}/network.reads", _NETWORK["reads"], reserve)
        case "network.delete":
            return _arm(who, "deletes", reserve), _unseen(f"{region}/network.writes", _NETWORK["writes"], reserve)
        case "compute.read":
            return _arm(who, "reads", reserve), _unseen(f"{region}/compute.reads", _COMPUTE["reads"], reserve)
        case "compute.delete":
            return _arm(who, "deletes", reserve), _told(f"{region}/compute.vm-deletes", _VM_DELETES, reserve)
        case "disk.delete":
            return _arm(who, "deletes", reserve), _unseen(f"{region}/compute.disks", _COMPUTE["disks"], reserve)
        case "tags.write":
            # Resource Manager's own operation; no provider is involved.
            return (_arm(who, "writes", reserve),)
        case "graph":
            # Its limit is per user, not per region. Budgets are per subscription, so concurrent sweeps of several may
            # be throttled, and are retried.
            return (_unseen(f"{where.principal}/graph.queries", _GRAPH, 0.0),)


@lru_cache(maxsize=4096)
def lane_draws(lane: str, reserve: float) -> tuple[Draw, ...] | None:
    """What one job of a lane draws on: the call that the lane is named for, and the reads right before it. None if it
    is not a lane of Azure."""
    parts = lane.split("/")
    if parts[0] != PROVIDER or len(parts) not in (4, 5):
        return None
    where = AzureScope(subscription=parts[1], group="", region=parts[2], client_id=parts[3] if len(parts) == 5 else "")
    calls: Mapping[str, Sequence[Call]] = {
        "network.read": ("network.read",),
        "compute.read": ("compute.read",),
        # Reads the interface and the machine that may use it.
        "network.delete": ("network.delete", "network.read", "compute.read"),
        "compute.delete": ("compute.delete", "compute.read"),
        "disk.delete": ("disk.delete", "compute.read"),
    }
    drawn: dict[str, Draw] = {}
    for call in calls.get(parts[-1], ()):
        for draw in call_draws(where, call, reserve):
            before = drawn.get(draw.limit.name)
            drawn[draw.limit.name] = Draw(draw.limit, draw.cost + (before.cost if before else 0.0))
    return tuple(drawn.values())


def remaining(draw: Draw, headers: Mapping[str, str]) -> float | None:
    """What the response headers say is left of a limit; None if no header is about it."""
    name = draw.limit.name.rpartition("/")[2]
    for header, value in headers.items():
        found = _SUBSCRIPTION.fullmatch(header)
        if found is not None and name == f"arm.{found[1].lower()}":
            return _number(value)
        if name == "compute.vm-deletes" and header.lower() == _RESOURCE:
            deletes = _DELETE_VM.search(value)
            return float(deletes[1]) if deletes is not None else None
        if name == "graph.queries" and header.lower() == _USER_QUOTA:
            # The remaining number belongs to an unknown window: only zero is useful.
            return 0.0 if _number(value) == 0 else None
    return None


def _number(text: str) -> float | None:
    return float(text) if text.strip().isdigit() else None


def _arm(who: str, name: str, reserve: float) -> Draw:
    return _told(f"{who}/arm.{name}", _ARM[name], reserve)


def _told(name: str, size: tuple[float, float], reserve: float) -> Draw:
    """A bucket whose remaining tokens every response reports: the reserve is left in it."""
    capacity, rate = size
    return Draw(Limit.bucket(name, capacity, rate, spare=max(capacity * reserve, rate * LATE)))


def _unseen(name: str, size: tuple[float, float], reserve: float) -> Draw:
    """A bucket whose remaining tokens are never reported: capacity and rate are reduced, to leave a share for
    others."""
    capacity, rate = size[0] * (1 - reserve), size[1] * (1 - reserve)
    return Draw(Limit.bucket(name, capacity, rate, spare=min(capacity / 4, rate * LATE)))
