"""A made-up world for the demo: objects that are going, and what they own at a simulated provider.
Resources depend on each other within an object and across objects; some are reserved, some are strangers'."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from service.contract import Event
from service.local.provider import Behaviour, Object, Quota, Resource, Seed, TargetOf

CLUSTER: Final = "demo"
SOURCE: Final = "simulated"
RESERVED: Final = timedelta(seconds=180)
"""For how long a network interface is reserved, as the provider in the real world says it."""

ACCOUNTS: Final = ("compute", "network", "interfaces", "storage")
_BUSIEST: Final = 4
"""Deletes that one object needs in the account that has most of them."""


@dataclass(frozen=True, slots=True)
class Invented:
    """`ours` are the resources that must go, `foreign` those that nobody may touch."""

    behaviour: Behaviour
    seed: Seed
    events: tuple[Event, ...]
    ours: frozenset[str]
    foreign: frozenset[str]
    reserved: int


def invent(objects: int, length: timedelta) -> Invented:
    """A world that keeps the workers busy for about the given time."""
    resources: list[Resource] = []
    described: list[Object] = []
    for number in range(objects):
        made, targets = _object(number)
        resources += made
        described.append(Object(uid=f"uid-{number}", owner=_owner(number), targets=tuple(targets)))
    strangers = [
        Resource(account=account, id=f"{account}-of-somebody-{number}", owner="somebody-else")
        for account in ACCOUNTS
        for number in range(5)
    ]
    events = tuple(
        Event(
            cluster=CLUSTER,
            resource="clusters",
            uid=f"uid-{number}",
            name=f"cluster-{number}",
            namespace="demo",
            source=SOURCE,
            # Every sixth was found by a sweep: nobody waits for it.
            urgent=int(number % 6 != 5),
            reason="deleted" if number % 6 != 5 else "orphan",
        )
        for number in range(objects)
    )
    foreign = [one for one in (*resources, *strangers) if one.owner == "somebody-else"]
    ours = [one for one in resources if one.owner != "somebody-else"]
    return Invented(
        behaviour=_behaviour(objects, length),
        seed=Seed(resources=(*resources, *strangers), objects=tuple(described)),
        events=events,
        ours=frozenset(one.id for one in ours),
        foreign=frozenset(one.id for one in foreign),
        reserved=sum(1 for one in ours if one.reserved),
    )


def _behaviour(objects: int, length: timedelta) -> Behaviour:
    """The quota is what makes it last: a burst at the beginning, the rest at the pace of the refill."""
    seconds = length.total_seconds()
    scale = RESERVED.total_seconds() / min(6.0, max(2.0, seconds / 5))
    deletes = objects * _BUSIEST * 1.15
    burst = max(10.0, round(deletes * 0.3))
    rate = max(2.0, (deletes - burst) / max(4.0, seconds * 0.7 - 3))
    return Behaviour(
        latency=(timedelta(milliseconds=20), timedelta(milliseconds=80)),
        quota=Quota(capacity=burst, per=timedelta(seconds=burst / rate * scale)),
        errors=0.01,
        scale=scale,
        seed=7,
    )


def _owner(number: int) -> str:
    return f"{CLUSTER}/clusters/uid-{number}"


def _object(number: int) -> tuple[list[Resource], list[TargetOf]]:
    """Three chains that do not wait for each other; the stages of a chain do."""
    owner = _owner(number)
    balancer, listener, group = f"lb-{number}", f"listener-{number}", f"sg-{number}"
    interface = f"nic-{number}"
    machines, disk = [f"vm-{number}-{index}" for index in range(3)], f"disk-{number}"
    volumes, snapshot = [f"volume-{number}-{index}" for index in range(2)], f"snapshot-{number}"
    # Every fourth security group is still used by the interface of a neighbour: only the provider knows.
    neighbour = f"nic-{max(0, number - 1)}"
    used_by = tuple(f"interfaces/{name}" for name in ((interface,) if number % 4 else (interface, neighbour)))
    resources = [
        Resource(account="network", id=balancer, owner=owner, takes=45),
        Resource(account="network", id=listener, owner=owner, blocked_by=(balancer,)),
        Resource(
            account="interfaces",
            id=interface,
            owner=owner,
            reserved=RESERVED.total_seconds() if number % 2 else 0,
        ),
        Resource(account="network", id=group, owner=owner, blocked_by=used_by),
        *(Resource(account="compute", id=name, owner=owner, takes=20) for name in machines),
        Resource(account="compute", id=disk, owner=owner),
        *(Resource(account="storage", id=name, owner=owner) for name in volumes),
        Resource(account="storage", id=snapshot, owner=owner, blocked_by=tuple(volumes)),
    ]
    targets = [
        _target("network", balancer, "network", 0),
        _target("network", listener, "network", 0),
        _target("interfaces", interface, "interface", 0),
        _target("network", group, "interface", 1),
        *(_target("compute", name, "compute", 0) for name in machines),
        _target("compute", disk, "compute", 1),
        *(_target("storage", name, "storage", 0) for name in volumes),
        _target("storage", snapshot, "storage", 1),
    ]
    if number % 20 == 3:
        # The object claims it, its tag says otherwise: it must stay.
        stray = f"volume-{number}-shared"
        resources.append(Resource(account="storage", id=stray, owner="somebody-else"))
        shared = TargetOf(account="storage", id=stray, chain="shared", strategy="best-effort")
        targets.append(shared)
    return resources, targets


def _target(account: str, name: str, chain: str, stage: int) -> TargetOf:
    return TargetOf(account=account, id=name, chain=chain, stage=stage)
