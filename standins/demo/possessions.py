"""What one object of the demo owns at the simulated provider, and how its spec names it.
Resources depend on each other within an object and across objects; some are reserved, some are strangers'."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from standins.provider import Resource, TargetOf

RESERVED: Final = timedelta(seconds=180)
"""For how long a network interface is reserved, as the provider in the real world says it."""
STRANGER: Final = "somebody-else"
ACCOUNTS: Final = ("compute", "network", "interfaces", "storage")
BUSIEST: Final = 4
"""Deletes that one cluster needs in the account that has most of them."""


@dataclass(frozen=True, slots=True)
class Owned:
    resources: list[Resource]
    targets: list[TargetOf]


def cluster_owns(label: str, owner: str, *, reserved: bool, neighbour: str, stray: bool) -> Owned:
    """Three chains that do not wait for each other; the stages of a chain do."""
    balancer, listener, group = f"lb-{label}", f"listener-{label}", f"sg-{label}"
    interface = f"nic-{label}"
    machines, disk = [f"vm-{label}-{index}" for index in range(3)], f"disk-{label}"
    volumes, snapshot = [f"volume-{label}-{index}" for index in range(2)], f"snapshot-{label}"
    users = tuple(f"interfaces/{name}" for name in (interface, neighbour) if name)
    owned = Owned(
        [
            Resource(account="network", id=balancer, owner=owner, takes=45),
            Resource(account="network", id=listener, owner=owner, blocked_by=(balancer,)),
            _interface(label, owner, reserved=reserved),
            Resource(account="network", id=group, owner=owner, blocked_by=users),
            *(Resource(account="compute", id=name, owner=owner, takes=20) for name in machines),
            Resource(account="compute", id=disk, owner=owner),
            *(Resource(account="storage", id=name, owner=owner) for name in volumes),
            Resource(account="storage", id=snapshot, owner=owner, blocked_by=tuple(volumes)),
        ],
        [
            _target("network", balancer, "network", 0),
            _target("network", listener, "network", 0),
            _target("interfaces", interface, "interface", 0),
            _target("network", group, "interface", 1),
            *(_target("compute", name, "compute", 0) for name in machines),
            _target("compute", disk, "compute", 1),
            *(_target("storage", name, "storage", 0) for name in volumes),
            _target("storage", snapshot, "storage", 1),
        ],
    )
    if stray:
        # The object claims it, its tag says otherwise: it must stay.
        shared = f"volume-{label}-shared"
        owned.resources.append(Resource(account="storage", id=shared, owner=STRANGER))
        owned.targets.append(TargetOf(account="storage", id=shared, chain="shared", strategy="best-effort"))
    return owned


def machine_owns(label: str, owner: str, *, reserved: bool) -> Owned:
    disk = f"disk-{label}"
    return Owned(
        [_interface(label, owner, reserved=reserved), Resource(account="compute", id=disk, owner=owner)],
        [_target("interfaces", f"nic-{label}", "interface", 0), _target("compute", disk, "compute", 0)],
    )


def _interface(label: str, owner: str, *, reserved: bool) -> Resource:
    length = RESERVED.total_seconds() if reserved else 0
    return Resource(account="interfaces", id=f"nic-{label}", owner=owner, reserved=length)


def _target(account: str, name: str, chain: str, stage: int) -> TargetOf:
    return TargetOf(account=account, id=name, chain=chain, stage=stage)
