"""The controllers of the embedded cluster, as one queue of things to look at again: definitions, namespaces, owners.
Each look is level-based: it reads what is there now, so that asking twice does no harm."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from standins.api import definitions
from standins.api.collecting import Owners
from standins.api.deleting import CLEANUP, Options, delete
from standins.api.documents import Document, decode
from standins.api.kinds import DEFINITIONS, NAMESPACES, Resource
from standins.api.statuses import Refusal
from standins.api.store import Change
from standins.api.terminating import remaining_conditions
from standins.api.world import World, condition

_STEP = 200


@dataclass(frozen=True, slots=True)
class _Look:
    what: Literal["definition", "namespace", "dependent"]
    name: str
    key: str = ""


class Controllers:
    def __init__(self, world: World) -> None:
        self._world = world
        self._owners = Owners(world)
        # Insertion order is the order of work; asking for the same look twice is one look.
        self._queue: dict[_Look, None] = {}
        self._news = asyncio.Event()
        world.store.listeners.append(self._heard)

    async def run(self) -> None:
        """Until cancelled. What is queued then is looked at by the next run."""
        self._news = asyncio.Event()
        while True:
            while self._queue:
                look = next(iter(self._queue))
                del self._queue[look]
                await self._look(look)
                await asyncio.sleep(0)
            self._news.clear()
            await self._news.wait()

    def orphan(self, uid: str) -> None:
        """Dependents of an owner forget it, so that they outlive it."""
        for name, key in self._owners.dependents(uid):
            self._owners.disown(name, key, {uid})

    def relearn(self) -> None:
        """After the store was exchanged as a whole: what is served, who owns what, and what must be looked at."""
        self._world.registry.reset()
        self._owners.relearn()
        for name, raw in self._world.store.table(DEFINITIONS.stored_in).objects.items():
            document = decode(raw)
            if definitions.is_established(document):
                self._world.registry.add(definitions.resource_of(document))
            self._ask("definition", name)
        for name, raw in self._world.store.table(NAMESPACES.stored_in).objects.items():
            if b'"deletionTimestamp"' in raw:
                self._ask("namespace", name)

    def _heard(self, name: str, change: Change) -> None:
        self._owners.heard(name, change)
        if change.kind == "DELETED":
            self._heard_of_removal(name, change)
        elif name == DEFINITIONS.stored_in:
            self._ask("definition", change.key)
        elif name == NAMESPACES.stored_in and b'"deletionTimestamp"' in change.raw:
            self._ask("namespace", change.key)
        elif b'"ownerReferences"' in change.raw and change.kind == "ADDED":
            self._ask("dependent", name, change.key)

    def _heard_of_removal(self, name: str, change: Change) -> None:
        if name == DEFINITIONS.stored_in:
            spec = decode(change.raw)["spec"]
            self._world.registry.drop(spec["group"], spec["names"]["plural"])
            self._world.store.drop(change.key)
        elif name in self._world.registry.terminating and not self._world.store.table(name).keys:
            self._ask("definition", name)
        for dependent in self._owners.bereaved(change):
            self._ask("dependent", *dependent)
        where, slash, _ = change.key.partition("/")
        if slash and not self._content(where):
            found = self._world.namespace(where)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                self._ask("namespace", where)

    def _ask(self, what: Literal["definition", "namespace", "dependent"], name: str, key: str = "") -> None:
        self._queue[_Look(what, name, key)] = None
        self._news.set()

    async def _look(self, look: _Look) -> None:
        match look.what:
            case "definition":
                await self._definition(look.name)
            case "namespace":
                await self._namespace(look.name)
            case "dependent":
                self._owners.look(look.name, look.key)

    async def _definition(self, name: str) -> None:
        raw = self._world.find(DEFINITIONS, "", name)
        if raw is None:
            return
        document = decode(raw)
        resource = definitions.resource_of(document)
        self._world.registry.add(resource)
        if "deletionTimestamp" in document["metadata"]:
            await self._end_definition(resource)
        elif not definitions.is_established(document):
            names = document["spec"]["names"]
            document["status"]["acceptedNames"] = names
            document["status"]["conditions"] = [
                condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
                condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
            ]
            self._world.put(DEFINITIONS, document)

    async def _end_definition(self, resource: Resource) -> None:
        self._world.registry.terminating.add(resource.name)
        await self._delete_all(resource, "")
        raw = self._world.find(DEFINITIONS, "", resource.name)
        if raw is None or self._world.store.table(resource.stored_in).keys:
            return
        document = decode(raw)
        meta = document["metadata"]
        kept = [each for each in meta.get("finalizers", ()) if each != CLEANUP]
        if kept == meta.get("finalizers"):
            return
        if kept:
            meta["finalizers"] = kept
            self._world.put(DEFINITIONS, document)
        else:
            self._world.remove(DEFINITIONS, document)

    async def _namespace(self, name: str) -> None:
        found = self._world.namespace(name)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        for resource in list(self._world.registry):
            if resource.namespaced and not resource.table:
                await self._delete_all(resource, name)
        found = self._world.namespace(name)
        if found is None:
            return
        if self._content(name):
            self._tell_what_remains(found)
        elif found["spec"].get("finalizers"):
            found["spec"]["finalizers"] = [each for each in found["spec"]["finalizers"] if each != "kubernetes"]
            if found["spec"]["finalizers"] or found["metadata"].get("finalizers"):
                self._world.put(NAMESPACES, found)
            else:
                self._world.remove(NAMESPACES, found)

    def _tell_what_remains(self, found: Document) -> None:
        told = remaining_conditions(self._world, found["metadata"]["name"])
        before = [(one["type"], one["status"], one["message"]) for one in found["status"].get("conditions", ())]
        if before != [(one["type"], one["status"], one["message"]) for one in told]:
            found["status"]["conditions"] = told
            self._world.put(NAMESPACES, found)

    async def _delete_all(self, resource: Resource, namespace: str) -> None:
        for count, (key, raw) in enumerate(list(self._world.store.table(resource.stored_in).within(namespace)), 1):
            if b'"deletionTimestamp"' not in raw:
                where, _, name = key.rpartition("/")
                try:
                    delete(self._world, resource, where, name, Options())
                except Refusal:
                    # Somebody else removed it between two steps.
                    continue
            if count % _STEP == 0:
                await asyncio.sleep(0)

    def _content(self, namespace: str) -> int:
        return sum(table.count(namespace) for table in self._world.store.tables.values())
