"""Resources of the simulated provider, their dependencies, and the objects that own them.
It knows no HTTP: it decides what a delete comes to and applies it."""

import heapq
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import msgspec

from tests.simulated.behaviour import Behaviour


class SeededResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as it is seeded. `owner` is its tag. It can't be deleted while one of `blocked_by` exists; a blocker
    in another account is written as ACCOUNT/ID. The first delete is answered that it is `reserved` for so many seconds
    from then on; an accepted delete `takes` so many."""

    account: str
    id: str
    owner: str
    blocked_by: tuple[str, ...] = ()
    reserved: float = 0.0
    takes: float = 0.0


class TargetOf(msgspec.Struct, frozen=True, kw_only=True):
    """One resource as an object names it."""

    account: str
    id: str
    region: str = "here"
    chain: str = "main"
    stage: int = 0
    strategy: Literal["required", "best-effort"] = "required"


class SeededObject(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    owner: str
    targets: tuple[TargetOf, ...]


class Seed(msgspec.Struct, frozen=True, kw_only=True):
    resources: tuple[SeededResource, ...] = ()
    objects: tuple[SeededObject, ...] = ()


@dataclass(slots=True)
class ExistingResource:
    """An existing resource and the state of its deletion."""

    seed: SeededResource
    reserved_until: float | None = None
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The status of a delete and the reason for it."""

    status: int
    blocker: str = ""
    reserved_until: float | None = None


@dataclass(slots=True)
class ProviderState:
    behaviour: Behaviour
    existing: dict[tuple[str, str], ExistingResource] = field(default_factory=dict)
    objects: dict[str, SeededObject] = field(default_factory=dict)
    gone: int = 0
    # A heap of the accepted deletes: when each is complete, and of which resource.
    deleting: list[tuple[float, tuple[str, str]]] = field(default_factory=list)

    def add(self, seed: Seed) -> None:
        for resource in seed.resources:
            self.existing[resource.account, resource.id] = ExistingResource(resource)
        for one in seed.objects:
            self.objects[one.uid] = one

    def find(self, account: str, name: str) -> ExistingResource | None:
        return self.existing.get((account, name))

    def complete_deletes(self, now: float) -> list[tuple[str, str]]:
        """Removes resources whose accepted delete is complete."""
        over = []
        while self.deleting and self.deleting[0][0] <= now:
            key = heapq.heappop(self.deleting)[1]
            self._remove(key)
            over.append(key)
        return over

    def delete(self, account: str, name: str, now: float) -> DeleteResult:
        found = self.find(account, name)
        if found is None:
            return DeleteResult(404)
        if found.gone_at is not None:
            return DeleteResult(202)
        for blocker in found.seed.blocked_by:
            owner_account, _, other = blocker.rpartition("/")
            if (owner_account or account, other) in self.existing:
                return DeleteResult(409, blocker=blocker)
        if found.seed.reserved:
            if found.reserved_until is None:
                found.reserved_until = now + self.behaviour.real(timedelta(seconds=found.seed.reserved))
            if now < found.reserved_until:
                return DeleteResult(400, reserved_until=found.reserved_until)
        if found.seed.takes:
            found.gone_at = now + self.behaviour.real(timedelta(seconds=found.seed.takes))
            heapq.heappush(self.deleting, (found.gone_at, (account, name)))
            return DeleteResult(202)
        self._remove((account, name))
        return DeleteResult(204)

    def _remove(self, key: tuple[str, str]) -> None:
        self.existing.pop(key, None)
        self.gone += 1
