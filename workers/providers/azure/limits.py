"""Rate limits of Azure: Resource Manager's token buckets per identity, and the providers' own per region.
Names begin with the region, because a budget belongs to a subscription; settings override limits by name. A call
without a row in `CALLS` is an error: it would be made without any limit."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from service.contract import Draw, Limit
from workers.providers.azure.model import PROVIDER, AzureScope

if TYPE_CHECKING:
    from workers.providers.azure.kinds.declaration import AzureKind

Call = str
"""Name of a kind of call, a key of `CALLS`."""

# Capacity and refill per second.
_ARM: Final = {"reads": (250.0, 25.0), "writes": (200.0, 10.0), "deletes": (200.0, 10.0)}


class CallBuckets(NamedTuple):
    """What a call draws on: a bucket of Resource Manager (a key of `_ARM`, or empty), and one of the resource provider
    with its capacity and refill per second. With `reported` every response says what is left in the latter. With
    `by_identity` that bucket is one identity's in all regions, and leaves nothing to others."""

    arm: str
    bucket: str = ""
    size: tuple[float, float] = (0.0, 0.0)
    reported: bool = False
    by_identity: bool = False


CALLS: Final[Mapping[Call, CallBuckets]] = {
    "network.read": CallBuckets("reads", "network.reads", (10_000.0, 10_000 / 300)),
    "network.delete": CallBuckets("deletes", "network.writes", (1000.0, 1000 / 300)),
    # Azure documents no figures for reads and disks. They are separate, so that throttling by compute does not pause
    # other calls.
    "compute.read": CallBuckets("reads", "compute.reads", (1000.0, 50.0)),
    "compute.delete": CallBuckets("deletes", "compute.vm-deletes", (1500.0, 500 / 60), reported=True),
    "disk.delete": CallBuckets("deletes", "compute.disks", (200.0, 10.0)),
    # Resource Manager's own operation; no provider is involved.
    "tags.write": CallBuckets("writes"),
    # Its limit is per user, not per region. Budgets are per subscription, so concurrent sweeps of several may be
    # throttled, and are retried. Azure uses a window of five seconds; this bucket never allows more than 15 calls in
    # any five seconds.
    "graph": CallBuckets("", "graph.queries", (5.0, 2.0), by_identity=True),
}

LATE: Final = 0.75
"""Seconds from when a lane draws tokens until its call arrives, including the reads before it. Meanwhile our bucket
refills while Azure's, if full, does not: that much is left in ours."""

MOST_LANES: Final = 4096
"""Lanes whose draws are cached."""

_SUBSCRIPTION: Final = re.compile(r"x-ms-ratelimit-remaining-subscription-(reads|writes|deletes)", re.IGNORECASE)
_RESOURCE: Final = "x-ms-ratelimit-remaining-resource"
_DELETE_VM: Final = re.compile(r"DeleteVM(?:Subscription)?Maximum;(\d+)", re.IGNORECASE)
_USER_QUOTA: Final = "x-ms-user-quota-remaining"


class UndeclaredLimits(LookupError):
    """A call has no row in `CALLS`; it is not made."""

    def __init__(self, call: Call, caller: str = "") -> None:
        who = f"{caller} makes" if caller else "there is"
        super().__init__(
            f"{who} a call {call!r} on Azure without declared limits: add a row with a bucket for it to CALLS in "
            f"workers/providers/azure/limits.py"
        )


@lru_cache(maxsize=1024)
def call_draws(where: AzureScope, call: Call, reserve: float) -> tuple[Draw, ...]:
    """What one call draws on; the first of them is Resource Manager's. Raises UndeclaredLimits."""
    limits = CALLS.get(call)
    if limits is None or not (limits.arm or limits.bucket):
        raise UndeclaredLimits(call)
    drawn = list[Draw]()
    if limits.arm:
        drawn.append(_told(f"{where.region}/{where.principal}/arm.{limits.arm}", _ARM[limits.arm], reserve))
    if limits.bucket:
        whose = where.principal if limits.by_identity else where.region
        declared = _told if limits.reported else _unseen
        drawn.append(declared(f"{whose}/{limits.bucket}", limits.size, 0.0 if limits.by_identity else reserve))
    return tuple(drawn)


class LaneLimits:
    """What the lanes of the provider's kinds draw on. `reserve` is the part of every quota that is left for others."""

    def __init__(self, kinds: "Iterable[AzureKind]", reserve: float) -> None:
        self._reserve = reserve
        self._calls: dict[str, Counter[Call]] = {}
        self._draws: dict[str, tuple[Draw, ...]] = {}
        self.add(*kinds)

    def add(self, *kinds: "AzureKind") -> None:
        """Adds the lanes of these kinds. Raises UndeclaredLimits."""
        for kind in kinds:
            self._add(kind, kind.reading, (kind.reading,))
            # Reads right before the delete: the resource itself, and what it may be attached to.
            before = (kind.reading,) if kind.host is None else (kind.reading, kind.host.reading)
            self._add(kind, kind.removing, (kind.removing, *before))
            if kind.host is not None:
                self.add(kind.host)
        self._draws.clear()

    def draws(self, lane: str) -> tuple[Draw, ...] | None:
        """What one job of a lane draws on: the call that the lane is named for, and the reads right before it. Nothing
        if no kind has this lane; then no call is made in it. None if it is not a lane of Azure."""
        known = self._draws.get(lane)
        if known is None:
            parts = lane.split("/")
            if parts[0] != PROVIDER or len(parts) not in (4, 5):
                return None
            client_id = parts[3] if len(parts) == 5 else ""
            where = AzureScope(subscription=parts[1], group="", region=parts[2], client_id=client_id)
            known = self._lane_draws(where, parts[-1])
            if len(self._draws) >= MOST_LANES:
                self._draws.clear()
            self._draws[lane] = known
        return known

    def _add(self, kind: "AzureKind", operation: str, calls: tuple[Call, ...]) -> None:
        """A lane that several kinds share has room for the calls of each of them."""
        for call in calls:
            limits = CALLS.get(call)
            if limits is None or not (limits.arm or limits.bucket):
                raise UndeclaredLimits(call, f"kind {kind.name}")
        self._calls[operation] = self._calls.get(operation, Counter()) | Counter(calls)

    def _lane_draws(self, where: AzureScope, operation: str) -> tuple[Draw, ...]:
        drawn: dict[str, Draw] = {}
        for call, times in self._calls.get(operation, Counter[Call]()).items():
            for draw in call_draws(where, call, self._reserve):
                before = drawn.get(draw.limit.name)
                cost = draw.cost * times + (before.cost if before else 0.0)
                drawn[draw.limit.name] = Draw(draw.limit, cost)
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


def _told(name: str, size: tuple[float, float], reserve: float) -> Draw:
    """A bucket whose remaining tokens every response reports: the reserve is left in it."""
    capacity, rate = size
    return Draw(Limit.bucket(name, capacity, rate, spare=max(capacity * reserve, rate * LATE)))


def _unseen(name: str, size: tuple[float, float], reserve: float) -> Draw:
    """A bucket whose remaining tokens are never reported: capacity and rate are reduced, to leave a share for
    others."""
    capacity, rate = size[0] * (1 - reserve), size[1] * (1 - reserve)
    return Draw(Limit.bucket(name, capacity, rate, spare=min(capacity / 4, rate * LATE)))
