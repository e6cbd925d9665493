"""A made-up world for the demo: objects of a cluster, and what they own at a simulated provider.
Most of them will go; some are marked so that they, or what they own, must stay, and the fate of each is known here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from service.contract.names import DELETION_POLICY, GC, PREFIX, PREVENT_DELETE
from standins.demo.kinds import CLUSTERS, MACHINES, Kind
from standins.demo.possessions import ACCOUNTS, BUSIEST, RESERVED, STRANGER, Owned, cluster_owns, machine_owns
from standins.provider import Behaviour, Quota, Resource, Seed, TargetOf

SHOP: Final = "shop"
PREVIEW: Final = "preview"
"""The Namespace that is deleted as a whole."""
RECORDS: Final = "records"
RETAIN: Final = {f"{PREFIX}/{DELETION_POLICY}": "retain"}
NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {SHOP: {}, PREVIEW: {}, RECORDS: RETAIN}
"""With their annotations."""

Fate = Literal["goes", "retained", "protected", "opted out", "lives"]
"""`goes`, and what it owns with it; of all others what they own stays. Who is protected waits, who lives is let be."""


@dataclass(frozen=True, slots=True, eq=False)
class Thing:
    """An object as it is to be made; each is itself alone."""

    kind: Kind
    namespace: str
    name: str
    fate: Fate
    targets: tuple[TargetOf, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.plural} {self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """The tag of what it owns."""
        return f"{self.namespace}/{self.name}"

    @property
    def watched(self) -> bool:
        return self.fate != "opted out"

    @property
    def released(self) -> bool:
        return self.fate in ("goes", "retained")

    @property
    def remains(self) -> bool:
        return self.fate in ("protected", "lives")

    def body(self) -> dict[str, Any]:
        return {
            "metadata": {"name": self.name, "annotations": dict(self.annotations)},
            "spec": {"owner": self.owner, "targets": [msgspec.to_builtins(target) for target in self.targets]},
        }


@dataclass(frozen=True, slots=True)
class Invented:
    """`ours` are the resources that must go, `kept` those that nobody may touch."""

    things: tuple[Thing, ...]
    behaviour: Behaviour
    seed: Seed
    ours: frozenset[str]
    kept: frozenset[str]
    reserved: int

    def of_fate(self, *fates: Fate) -> list[Thing]:
        return [thing for thing in self.things if thing.fate in fates]

    @property
    def to_release(self) -> int:
        """Those of these that Knell is done with in the end, the cluster on AWS and the node on Azure."""
        return sum(thing.released for thing in self.things) + 2


def invent(objects: int, length: timedelta) -> Invented:
    """So many objects that go, and a few that don't; it keeps the workers busy for about the given time."""
    made = [*_going(objects), *_staying()]
    strangers = [
        Resource(account=account, id=f"{account}-of-somebody-{number}", owner=STRANGER)
        for account in ACCOUNTS
        for number in range(5)
    ]
    ours = [
        one for thing, owned in made for one in owned.resources if thing.fate == "goes" and one.owner == thing.owner
    ]
    every = [*(one for _, owned in made for one in owned.resources), *strangers]
    going = frozenset(one.id for one in ours)
    return Invented(
        things=tuple(thing for thing, _ in made),
        behaviour=_behaviour(objects, length),
        seed=Seed(resources=tuple(every)),
        ours=going,
        kept=frozenset(one.id for one in every) - going,
        reserved=sum(1 for one in ours if one.reserved),
    )


def _going(objects: int) -> Iterator[tuple[Thing, Owned]]:
    """Every fourth is a machine, the last quarter is in the Namespace that goes as a whole."""
    for number in range(objects):
        kind = MACHINES if number % 4 == 3 else CLUSTERS
        namespace = PREVIEW if number >= objects - objects // 4 else SHOP
        # Every fourth security group is still used by the interface of a neighbour: only the provider knows.
        neighbour = f"nic-{number - 1}" if number and number % 4 == 0 else ""
        stray = number % 20 == 2
        yield _made(kind, namespace, str(number), "goes", reserved=number % 2 == 1, neighbour=neighbour, stray=stray)


def _staying() -> Iterator[tuple[Thing, Owned]]:
    yield _made(CLUSTERS, SHOP, "archive", "retained", RETAIN)
    # These say nothing themselves: their Namespace does.
    yield _made(CLUSTERS, RECORDS, "ledger", "retained")
    yield _made(MACHINES, RECORDS, "scanner", "retained")
    yield _made(CLUSTERS, SHOP, "vault", "protected", {f"{PREFIX}/{PREVENT_DELETE}": "true"})
    yield _made(CLUSTERS, SHOP, "handmade", "opted out", {GC: "disabled"})
    yield _made(CLUSTERS, SHOP, "till", "lives")
    yield _made(MACHINES, SHOP, "printer", "lives")


def _made(
    kind: Kind,
    namespace: str,
    label: str,
    fate: Fate,
    annotations: Mapping[str, str] | None = None,
    *,
    reserved: bool = False,
    neighbour: str = "",
    stray: bool = False,
) -> tuple[Thing, Owned]:
    name = f"{kind.singular}-{label}"
    owner = f"{namespace}/{name}"
    if kind is MACHINES:
        owned = machine_owns(label, owner, reserved=reserved)
    else:
        owned = cluster_owns(label, owner, reserved=reserved, neighbour=neighbour, stray=stray)
    return Thing(kind, namespace, name, fate, tuple(owned.targets), annotations or {}), owned


def _behaviour(objects: int, length: timedelta) -> Behaviour:
    """The quota is what makes it last: a burst at the beginning, the rest at the pace of the refill."""
    seconds = length.total_seconds()
    scale = RESERVED.total_seconds() / min(6.0, max(2.0, seconds / 5))
    deletes = objects * 0.75 * BUSIEST * 1.15
    burst = max(10.0, round(deletes * 0.3))
    rate = max(2.0, (deletes - burst) / max(4.0, seconds * 0.7 - 3))
    return Behaviour(
        latency=(timedelta(milliseconds=20), timedelta(milliseconds=80)),
        quota=Quota(capacity=burst, per=timedelta(seconds=burst / rate * scale)),
        errors=0.01,
        scale=scale,
        seed=7,
    )
