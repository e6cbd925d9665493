"""What there is at the provider: resources that depend on each other, and the objects that they belong to.
It knows no HTTP; a delete is judged here and changes the world here."""

import heapq
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import msgspec

from standins.provider.behaviour import Behaviour


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as it is seeded. `owner` is its tag; it can't go while one of `blocked_by` is there; who
    first asks to delete it learns that it is `reserved` for so many seconds from then; once its delete is
    accepted, it `takes` so many until it is gone. A blocker in another account is written as ACCOUNT/ID."""

    account: str
    id: str
    owner: str
    blocked_by: tuple[str, ...] = ()
    reserved: float = 0.0
    takes: float = 0.0


class TargetOf(msgspec.Struct, frozen=True, kw_only=True):
    """What an object says of one resource that is its own."""

    account: str
    id: str
    region: str = "here"
    chain: str = "main"
    stage: int = 0
    strategy: Literal["required", "best-effort"] = "required"


class Object(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    owner: str
    targets: tuple[TargetOf, ...]


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    resources: tuple[Resource, ...] = ()
    objects: tuple[Object, ...] = ()


@dataclass(slots=True)
class Standing:
    """A resource that is there, with what happened to it."""

    seed: Resource
    reserved_until: float | None = None
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What a delete comes to: the status, and the words that go with it."""

    status: int
    blocker: str = ""
    reserved_until: float | None = None


@dataclass(slots=True)
class World:
    behaviour: Behaviour
    standing: dict[tuple[str, str], Standing] = field(default_factory=dict)
    objects: dict[str, Object] = field(default_factory=dict)
    gone: int = 0
    # A heap: when an accepted delete is over, and of what.
    deleting: list[tuple[float, tuple[str, str]]] = field(default_factory=list)

    def add(self, seed: Seed) -> None:
        for resource in seed.resources:
            self.standing[resource.account, resource.id] = Standing(resource)
        for one in seed.objects:
            self.objects[one.uid] = one

    def find(self, account: str, name: str) -> Standing | None:
        return self.standing.get((account, name))

    def lapse(self, now: float) -> list[tuple[str, str]]:
        """Removes what was accepted and whose time has come."""
        over = []
        while self.deleting and self.deleting[0][0] <= now:
            key = heapq.heappop(self.deleting)[1]
            self._remove(key)
            over.append(key)
        return over

    def delete(self, account: str, name: str, now: float) -> Judged:
        found = self.find(account, name)
        if found is None:
            return Judged(404)
        if found.gone_at is not None:
            return Judged(202)
        for blocker in found.seed.blocked_by:
            owner_account, _, other = blocker.rpartition("/")
            if (owner_account or account, other) in self.standing:
                return Judged(409, blocker=blocker)
        if found.seed.reserved:
            if found.reserved_until is None:
                found.reserved_until = now + self.behaviour.real(timedelta(seconds=found.seed.reserved))
            if now < found.reserved_until:
                return Judged(400, reserved_until=found.reserved_until)
        if found.seed.takes:
            found.gone_at = now + self.behaviour.real(timedelta(seconds=found.seed.takes))
            heapq.heappush(self.deleting, (found.gone_at, (account, name)))
            return Judged(202)
        self._remove((account, name))
        return Judged(204)

    def _remove(self, key: tuple[str, str]) -> None:
        self.standing.pop(key, None)
        self.gone += 1
